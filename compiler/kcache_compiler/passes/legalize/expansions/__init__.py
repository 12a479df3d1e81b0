"""Operations that are programs of simpler ones: each becomes a call of a function with its definition."""
