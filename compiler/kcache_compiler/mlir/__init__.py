"""The MLIR binding layer.

Contexts, typed builders of operations, walks, and text builders. Only this package imports ``torch_mlir``.
"""
