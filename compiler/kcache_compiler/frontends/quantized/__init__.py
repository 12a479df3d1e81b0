"""Uniform quantization: quantized elements become their storage integers before the node graph.

An operation on quantized operands is what the StableHLO specification defines: dequantize the operands, apply
the operation to floats, quantize the result. The node graph has no quantized types: scales and zero points
are constants in it, so equal computations have one key, however they were written.
"""
