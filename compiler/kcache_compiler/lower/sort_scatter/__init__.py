"""Scatter and sort, whose memory accesses depend on data."""
