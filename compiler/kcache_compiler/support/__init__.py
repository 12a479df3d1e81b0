"""Support check: every operation of a program that a target rejects, where a compile names the first only.

``check`` compiles the program. As long as it is rejected, it removes the rejected operation and compiles the
rest (nodes of ONNX, operations of the Torch dialect); of a StableHLO program it compiles each operation by
itself.
"""

from kcache_compiler.support.check import Rejection, Report, check

__all__ = ["Rejection", "Report", "check"]
