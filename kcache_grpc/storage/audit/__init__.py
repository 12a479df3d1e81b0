"""Audit events: how they are filtered, sealed and proven. No database here."""
