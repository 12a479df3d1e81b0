"""Random StableHLO programs of one operation, within the specification's constraints, and what they give.

``python -m tests.ops.generated --programs N --seed S [--op NAME]`` runs them and compares with the reference
interpreter; ``catalog.py`` lists the operations.
"""
