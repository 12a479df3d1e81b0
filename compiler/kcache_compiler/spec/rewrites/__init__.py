"""Rewrites of canonical nodes, applied as nodes are built, by subject; ``table`` lists them."""
