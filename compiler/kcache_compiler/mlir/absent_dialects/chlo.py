"""No classes: see the package."""
