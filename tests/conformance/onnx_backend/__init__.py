"""ONNX's own runner of operator tests over ``kcache_grpc.onnx``."""
