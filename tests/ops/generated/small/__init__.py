"""Random programs on elements of 8 bits and fewer: those of other dtypes, with other types and values."""
