"""The graph format: a protobuf graph of documented operations, for clients without any MLIR.

    GraphProgram    program.py      plain values; the worker decodes the message into them
    OPS             operations.py   the op set: a table for checks, lowering and documentation
    lower_graph     lower.py        GraphProgram -> text of a StableHLO module

docs/reference/graph-format.md is made from the table.
"""
