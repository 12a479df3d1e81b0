"""The SDK: tiers memory, disk and remote, and the clients over them."""
