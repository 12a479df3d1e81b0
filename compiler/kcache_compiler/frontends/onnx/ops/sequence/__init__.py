"""ONNX operators on sequences and signals."""
