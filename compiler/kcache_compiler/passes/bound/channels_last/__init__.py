"""Layout assignment: regions around convolutions with bound weights are computed with channels last."""
