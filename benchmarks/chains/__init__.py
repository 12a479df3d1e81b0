"""How long graphs of 1,000 operations of one kind take to compile, and how large their code is."""
