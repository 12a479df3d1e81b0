"""Frontends: program bytes of a stated format to one verified, legalized native module."""

from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import FORMATS, Program, read_program

__all__ = ["FORMATS", "Limits", "Program", "read_program"]
