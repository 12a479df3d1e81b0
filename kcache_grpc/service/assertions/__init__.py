"""Assertions of clients: which programs a source graph lowers to."""
