"""Kernels of kcache behind the interfaces of ONNX and ONNX Runtime."""
