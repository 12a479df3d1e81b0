"""Passes over MLIR: legalization, fusion, math expansion, narrow types. ``stage`` defines what a pass is."""
