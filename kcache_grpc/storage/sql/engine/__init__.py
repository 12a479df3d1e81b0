"""Databases: connections, transactions, errors and statements shared by all tables."""
