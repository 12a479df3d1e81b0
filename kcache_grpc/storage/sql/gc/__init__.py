"""Garbage collection on SQL: limits, candidates and removal."""
