"""Postgres: connections, roles, schema checks, notifications and advisory locks."""
