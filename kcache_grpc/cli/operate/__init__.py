"""Commands for operators: they open a store, or run a server."""
