"""Channels, retries, deadlines and transfers between the client and a service."""
