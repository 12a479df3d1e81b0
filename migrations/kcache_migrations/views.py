"""Expressions of the views that people read: digests in hex, times in ISO 8601."""

from __future__ import annotations


def hexadecimal(dialect: str, column: str) -> str:
    """Lower-case hex of a blob, NULL of none."""
    if dialect == "sqlite":
        return f"CASE WHEN {column} IS NOT NULL THEN lower(hex({column})) END"
    return f"encode({column}, 'hex')"


def iso_time(dialect: str, column: str) -> str:
    """``2026-01-31T12:00:00.000000Z`` of UTC microseconds."""
    if dialect == "sqlite":
        seconds = f"strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch')"
        return f"{seconds} || printf('.%06dZ', {column} % 1000000)"
    moment = f"to_timestamp({column} / 1000000.0) AT TIME ZONE 'UTC'"
    return f"""to_char({moment}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
