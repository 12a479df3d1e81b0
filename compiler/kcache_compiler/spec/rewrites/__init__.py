"""Rewrites of canonical nodes as they are built, by subject; ``canonical.rewrites`` lists them."""
