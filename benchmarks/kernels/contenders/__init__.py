"""Who computes a kernel: kcache and its rivals, each called as its users call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.kernels.case import Array, Case


class Absent(Exception):
    """This contender does not take this kernel; the text says why."""


@dataclass(frozen=True)
class Built:
    """``call`` computes and waits for the result, which ``read`` turns into arrays.

    ``compile_s`` are the seconds from a program to something that can be called, ``compile_cpu_s`` those of
    all processors that work on it, ``stages`` what of them went where; ``launches`` how many loops there are.
    """

    call: Callable[[], Any]
    read: Callable[[Any], list[Array]]
    compile_s: float | None = None
    compile_cpu_s: float | None = None
    stages: dict[str, float] = field(default_factory=dict[str, float])
    launches: int | None = None


#: Builds one kernel for one contender, on arrays that all contenders share.
Builder = Callable[[Case, list[Array]], Built]
