"""Random programs over quantized values, and what the specification's formulas give for them, by NumPy.

``python -m tests.ops.generated.quantized --programs N --seed S [--op NAME] [--dtype i8:f32]`` runs them.
"""
