"""The local cache tiers of the client: memory and disk."""
