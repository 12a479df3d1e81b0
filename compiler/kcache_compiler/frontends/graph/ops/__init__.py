"""The op set of the graph format."""
