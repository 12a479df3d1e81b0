"""Random ONNX models of one node each, drawn from the operators' schemas, beside two other runtimes."""
