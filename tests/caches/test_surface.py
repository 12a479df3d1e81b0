"""The public surface of the package, and what importing it loads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import kcache_grpc
from kcache_grpc import caches, errors

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.issue(number=20, point=1)


def test_local_caches_load_neither_grpc_nor_numpy(tmp_path: Path) -> None:
    program = f"""
import json, sys
from kcache_grpc.caches import InMemoryCache, OnDiskCache, TieredCache
cache = TieredCache(InMemoryCache(), OnDiskCache(base_dir={str(tmp_path / "cache")!r}))
assert cache.insert("key", [1]) and cache.get("key") == [1]
print(json.dumps(sorted(sys.modules)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240
    )
    loaded = set(json.loads(ran.stdout))
    assert not loaded & {
        "grpc",
        "numpy",
        "google.protobuf",
        "pickle",
        "torch",
        "cryptography",
        "kcache_grpc.client",
    }


def test_the_public_names() -> None:
    assert caches.CacheError is errors.CacheError is kcache_grpc.CacheError
    assert issubclass(caches.CacheError, errors.KcacheError)
    assert issubclass(caches.CacheError, ValueError)
    for name in caches.__all__:
        assert name in dir(caches)
        assert getattr(caches, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'Missing'"):
        caches.Missing  # noqa: B018


def test_abstract_caches_cannot_be_made() -> None:
    for cls in (caches.Cache, caches.AsyncCache):
        with pytest.raises(TypeError, match="abstract"):
            cls()  # pyright: ignore[reportAbstractUsage]


def test_remote_caches_are_imported_lazily() -> None:
    """Nothing in the package imports the transport when it is loaded."""
    for path in (ROOT / "kcache_grpc" / "caches").glob("*.py"):
        if path.name == "remote.py":
            continue
        for node in ast.parse(path.read_text()).body:
            assert not isinstance(node, ast.Import | ast.ImportFrom) or "remote" not in ast.unparse(node)
