"""StableHLO programs: constraints, legacy text, CHLO definitions, dynamic custom calls."""
