"""Random programs with open sizes: compiled once, compared at three tuples of sizes.

``python -m tests.ops.generated.dynamic --programs N --seed S [--op NAME]`` runs them.
"""
