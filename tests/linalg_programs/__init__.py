"""Random programs of linalg on tensors, computed by NumPy while they are drawn."""
