"""Namespaces, specs, keys and graph mappings on SQL."""
