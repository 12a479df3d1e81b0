"""Empty modules for dialects that the MLIR bindings have no Python classes for.

Without them the bindings search for a module at each access to an attribute of such a dialect, which takes
longer than the access. The modules change nothing else.
"""
