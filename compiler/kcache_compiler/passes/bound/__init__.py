"""Rewrites of a StableHLO program whose arguments are partly bound, before it is split."""
