"""An MLIR context for the tests of passes over programs with bound arguments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcache_compiler.mlir import operations as mlir


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    """Enters a context and an unknown location for each test."""
    with mlir.new_context(), mlir.unknown_location():
        yield
