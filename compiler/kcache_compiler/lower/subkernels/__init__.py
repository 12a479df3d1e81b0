"""Operations that repeat, compiled once as subkernels and called from the launches."""
