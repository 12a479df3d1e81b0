"""Compiles what is not stored: one compile for each kernel, across callers and replicas."""
