"""Kernels of bundles in a client: preloaded in place, or imported into the cache directory."""
