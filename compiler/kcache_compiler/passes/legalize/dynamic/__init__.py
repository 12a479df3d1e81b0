"""Legalization of operations with dynamic shapes, and the run-time checks of their sizes."""
