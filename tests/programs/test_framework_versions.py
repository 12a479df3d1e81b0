"""A release of PyTorch or JAX that was not tested is named once, and used all the same."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.programs import framework_versions

pytestmark = pytest.mark.issue(number=19, point=29)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _nothing_was_warned() -> None:
    framework_versions._warn_once.cache_clear()


@pytest.mark.parametrize(
    ("package", "installed"), [("torch", "2.12.1"), ("torch", "3.0.0a1"), ("jax", "0.9.2"), ("jax", "1.0.1")]
)
def test_an_untested_release_is_named_once(
    package: str, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framework_versions, "version", lambda _: installed)
    with pytest.warns(KcacheWarning, match=f"tested with {package} .*{installed} is installed"):
        framework_versions.warn_if_untested(package)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        framework_versions.warn_if_untested(package)


@pytest.mark.parametrize("package", framework_versions.TESTED)
def test_the_tested_releases_pass_without_a_word(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for major, minor in framework_versions.TESTED[package]:
        monkeypatch.setattr(framework_versions, "version", lambda _, v=f"{major}.{minor}.7+cpu": v)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            framework_versions.warn_if_untested(package)


@pytest.mark.parametrize("package", framework_versions.TESTED)
def test_the_extra_requires_the_oldest_tested_release_and_no_upper_bound(package: str) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (requirement,) = re.findall(rf'^{package} = \[\s*"({package}[^"]*)"', text, re.MULTILINE)
    oldest, _ = framework_versions.TESTED[package]
    assert requirement == f"{package}>={oldest[0]}.{oldest[1]}"
