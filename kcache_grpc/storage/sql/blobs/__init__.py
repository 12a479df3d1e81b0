"""Bytes by digest on SQL, in rows or in an object store."""
