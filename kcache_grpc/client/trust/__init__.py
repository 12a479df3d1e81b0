"""Verification of signatures, and the pinned identities of servers."""
