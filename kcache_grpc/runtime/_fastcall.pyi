"""The extension module of ``_fastcall.c``."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

INTERFACE: int
MAX_BUFFERS: int
MAX_WORKSPACE: int
OPENMP_PARALLEL_FOR: int
TIMED_PARALLEL_FOR: int

def multiply_adds(rounds: int, /) -> float: ...
def read_buffer(array: Any, /) -> None: ...

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

class TensorState:
    def __new__(
        cls, data_ptr: Callable[[], int], tensors: list[Any], contents: tuple[bytes | None, ...]
    ) -> TensorState: ...
    def holds(self, tensors: list[Any], /) -> bool: ...

class TensorCall:
    def __new__(
        cls,
        run: int,
        dims: int,
        host: int,
        strict: bool,
        tensor_class: type,
        data_ptr: Callable[[], int],
        masks: tuple[int, ...],
        constants: tuple[int, ...],
        makers: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...],
        keep: object,
    ) -> TensorCall: ...
    def call(self, tensors: Sequence[Any], workspace: int, /) -> tuple[Any, ...] | int | None: ...
