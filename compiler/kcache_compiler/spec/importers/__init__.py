"""Import of StableHLO and linalg functions into the canonical graph."""
