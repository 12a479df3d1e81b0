"""Bundles of what a store holds: export, import, and import at the start of a server."""
