"""Commands for users: they call a service through the client."""
