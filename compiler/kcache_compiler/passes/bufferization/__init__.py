"""Passes from tensors to buffers: arguments and results as buffers of the caller, chains of updates."""
