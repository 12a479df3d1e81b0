"""Executes the cases of a pack on a GPU and compares their results, without a compiler."""
