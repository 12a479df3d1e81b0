"""Empty, because the bindings have no Python classes for this dialect: see the package."""
