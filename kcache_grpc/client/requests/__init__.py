"""Requests of the client to one service: one module for each group of RPCs."""
