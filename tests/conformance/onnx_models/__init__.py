"""ONNX models that the tests build, and what ONNX's reference computes of them."""
