"""StableHLO and CHLO operations that get a lowering of our own, before the toolchain's legalization."""
