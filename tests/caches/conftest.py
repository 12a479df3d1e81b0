"""An executor for all tests of caches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool
