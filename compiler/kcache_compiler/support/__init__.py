"""What of a program would be refused: all of it, where a compile names the first only.

``check`` compiles the program; where it is refused, it takes the refused operations away and goes on with the
rest (nodes of ONNX, operations of the Torch dialect), and compiles each operation of StableHLO alone.
"""

from kcache_compiler.support.check import check
from kcache_compiler.support.report import Refusal, Report

__all__ = ["Refusal", "Report", "check"]
