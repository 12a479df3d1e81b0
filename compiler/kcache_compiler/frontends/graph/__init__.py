"""The graph format: a protobuf graph of documented operations, for clients without MLIR.

    GraphProgram    program.py      the decoded message, as plain values
    OPS             operations.py   the op set: one table for checks, lowering and documentation
    lower_graph     lower.py        GraphProgram -> text of a StableHLO module

docs/reference/graph-format.md is generated from the table.
"""
