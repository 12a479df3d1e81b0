"""Uniform quantization: quantized elements become their storage integers before the node graph.

An operation on quantized operands is what the specification of StableHLO says it is: its operands as floats,
the operation on floats, its result quantized. The node graph knows no quantized type: scales and zero
points are constants in it, so equal computations have one key, however they were written.
"""
