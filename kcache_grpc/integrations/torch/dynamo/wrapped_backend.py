"""The backend inside the wrappers that Dynamo puts around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def is_wrapper_of(function: Any, backend: Callable[..., Any]) -> bool:
    """Whether a function with which Dynamo compiles graphs is ``backend``, or calls it."""
    while function is not None and function is not backend:
        following = getattr(function, "_torchdynamo_orig_backend", None)
        function = following if following is not None else getattr(function, "compiler_fn", None)
    return function is backend
