"""ONNX operators on images."""
