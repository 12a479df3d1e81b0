"""Operators of the client that become loops: recurrent layers, products of groups of rows."""
