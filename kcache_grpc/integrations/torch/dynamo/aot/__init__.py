"""AOTAutograd: its trace of a graph, and its metadata as JSON."""
