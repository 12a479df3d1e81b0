"""Audit events, usage and summaries on SQL."""
