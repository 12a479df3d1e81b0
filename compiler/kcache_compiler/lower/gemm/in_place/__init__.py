"""Products whose rows of A are read where they lie."""
