"""ONNX models: checks, constant folding, translation to StableHLO."""
