"""Whatever is asked for static exports of functions that compute with their sizes: no wrong number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.variants.size_arithmetic import Checker, checker

pytestmark = pytest.mark.issue(number=19, point=2)


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checker]:
    with checker(tmp_path_factory.mktemp("server")) as instance:
        yield instance


@pytest.mark.parametrize("seeds", [5, pytest.param(14, marks=pytest.mark.long)])
def test_exports_of_jax_functions_give_no_wrong_number(checks: Checker, seeds: int) -> None:
    """7 cases a seed over one store: functions share keys, where their sizes make them the same program."""
    pytest.importorskip("jax")
    before = checks.counts.copy()
    for seed in range(1, seeds + 1):
        checks.check(seed, "jax")
    counts = checks.counts - before
    assert counts["cases"] >= 6 * seeds
    for kind in ("calls", "calls at other sizes", "rejected requests", "rejected calls"):
        assert counts[kind] > seeds // 2, counts


@pytest.mark.long
def test_exports_of_a_pytorch_function_give_no_wrong_number(checks: Checker) -> None:
    pytest.importorskip("torch")
    before = checks.counts["cases"]
    checks.check(30, "torch")
    assert checks.counts["cases"] > before


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_exports_of_many_functions_give_no_wrong_number(checks: Checker, block: int) -> None:
    """10,000 cases, with those of all blocks."""
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    for seed in range(1000 + block * 75, 1075 + block * 75):
        checks.check(seed, "torch" if seed % 40 == 0 else "jax")
