"""docs/guide/caches.md: its examples run, and its numbers are those of the code."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kcache_grpc import caches
from kcache_grpc.caches import encoding
from kcache_grpc.caches.disk import _HEADER_SIZE, _PREFIX_SIZE  # pyright: ignore[reportPrivateUsage]
from kcache_grpc.caches.memory import MAGIC
from tests.caches.harness.pages import ROOT

pytestmark = pytest.mark.issue(number=20, point=1)
PAGE = (ROOT / "docs" / "guide" / "caches.md").read_text()


def test_the_example_gives_what_it_says(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path))
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    scope: dict[str, Any] = {}
    calls = 0
    for line in code[1].splitlines():
        statement, _, comment = line.partition("#")
        if not comment:
            exec(statement, scope)
            continue
        calls += 1
        assert repr(eval(statement, scope)) == comment.strip().partition(";")[0]
    assert calls == 2
    assert (tmp_path / "caches" / "my_compiler").is_dir()


def test_the_example_of_a_variable_gives_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.search(r'export MY_CACHE="(.*)"', PAGE)
    assert text is not None
    monkeypatch.setenv("MY_CACHE", text[1])
    cache: caches.InMemoryCache[Any, Any] = caches.InMemoryCache.from_env_var("MY_CACHE")
    assert (cache.count(), cache.get("answer"), cache.get(("matmul", 128))) == (2, 42, {"tile": [32, 32]})


def test_limits_and_formats_are_those_of_the_code() -> None:
    page = " ".join(PAGE.split())
    assert f"a nesting depth of {encoding.MAX_DEPTH} containers, {encoding.MAX_ITEMS} items" in page
    assert f"{encoding.MAX_ITEMS} items, {encoding.MAX_BYTES >> 30} GiB" in page
    assert f"nested up to a depth of {encoding.MAX_DEPTH}" in page
    assert f"a header of {len(MAGIC)} bytes (`kcache.caches`, a byte 1 and a line feed)" in page
    assert MAGIC == b"kcache.caches\x01\n"
    assert f"a header of {_HEADER_SIZE} bytes" in page
    assert f"| 0 | {_PREFIX_SIZE} | version prefix" in page
    for tag in "NTFidsbtlm":
        assert f"`{tag}`" in page


def test_every_public_name_is_on_the_page() -> None:
    for name in (*caches.__all__, "RemoteCache"):
        assert f"`{name}" in PAGE
