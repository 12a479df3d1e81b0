"""Symbolic sizes as values: expressions, guards, and the modes of a request."""
