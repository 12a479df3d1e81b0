"""GPU kernels of contractions: blocking, tile loads, FMA and MMA tiles."""
