"""Programs of ONNX: models, initializers and external data. Imports no onnx."""
