"""Dynamo's state in tests of the backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Dynamo without compiled functions, before the test and after it."""
    dynamo = pytest.importorskip("torch._dynamo")
    dynamo.reset()
    yield
    dynamo.reset()
