"""The version of this package, as every request tells it."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version


@lru_cache(maxsize=1)
def package_version() -> str:
    """As installed; ``0+unknown`` in a source tree that is not."""
    try:
        return version("kcache-grpc")
    except PackageNotFoundError:
        return "0+unknown"
