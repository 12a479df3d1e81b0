"""Products whose rows of A are read unpacked."""
