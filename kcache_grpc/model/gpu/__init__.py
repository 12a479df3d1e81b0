"""GPU targets and kernel launches as values."""
