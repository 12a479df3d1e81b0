"""Elements of 8 bits and fewer that no machine computes with: bytes in memory, other types in between."""
