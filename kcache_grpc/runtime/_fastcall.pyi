"""The extension module of ``_fastcall.c``."""

from collections.abc import Callable
from typing import Any

import numpy as np

INTERFACE: int
MAX_BUFFERS: int
MAX_WORKSPACE: int

class FastCall:
    def __new__(
        cls,
        run: int,
        dims: int,
        host: int,
        workspace: int,
        strict: bool,
        array_class: type,
        inputs: tuple[tuple[np.dtype[Any], int, tuple[int, ...]], ...],
        constants: tuple[int, ...],
        outputs: int,
        allocate: Callable[[], tuple[tuple[Any, ...], bytes]],
        keep: object,
    ) -> FastCall: ...
    def call(self, arrays: tuple[Any, ...], /) -> tuple[Any, ...] | None: ...
