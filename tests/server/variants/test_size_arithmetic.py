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


def test_exports_of_jax_functions_give_no_wrong_number(checks: Checker) -> None:
    """About 100 cases over one store: functions share keys, where their sizes make them the same program."""
    pytest.importorskip("jax")
    for seed in range(1, 15):
        checks.check(seed, "jax")
    assert checks.counts["cases"] >= 90
    for kind in ("calls", "calls at other sizes", "rejected requests", "rejected calls"):
        assert checks.counts[kind] > 10, checks.counts


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
