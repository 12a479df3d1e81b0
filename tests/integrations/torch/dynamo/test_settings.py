"""Modes and options of ``torch.compile(..., backend="kcache")``."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.dynamo.settings import Settings, settings_from
from kcache_grpc.model.options import Options
from kcache_grpc.model.schedule import RECORDED


def test_defaults() -> None:
    assert settings_from(None, None) == settings_from("default", {}) == Settings()
    assert Settings().options == Options()


@pytest.mark.parametrize(
    ("mode", "schedule"),
    [("reduce-overhead", ""), ("max-autotune", RECORDED), ("max-autotune-no-cudagraphs", RECORDED)],
)
def test_modes_choose_the_schedule(mode: str, schedule: str) -> None:
    assert settings_from(mode, None).schedule == schedule


def test_an_option_overrides_the_mode() -> None:
    assert settings_from("max-autotune", {"schedule": "tile=4"}).schedule == "tile=4"


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("fastest", None, "mode is 'fastest'; backend 'kcache' has default, reduce-overhead"),
        (None, {"epilogue_fusion": True}, "no option 'epilogue_fusion'; it has numerics, opt_level"),
        (None, {"fallback": "none"}, "fallback is 'none'; use one of eager, inductor"),
    ],
)
def test_what_the_backend_does_not_have(mode: Any, options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        settings_from(mode, options)


def test_what_changes_kernels_changes_records() -> None:
    ingredients = Settings().ingredients
    for changed in (
        {"numerics": "strict"},
        {"opt_level": 1},
        {"schedule": RECORDED},
        {"target": "x86-64-v3"},
    ):
        assert settings_from(None, changed).ingredients != ingredients
    for same in ({"strict": True}, {"fallback": "inductor"}, {"address": "127.0.0.1:1"}):
        assert settings_from(None, same).ingredients == ingredients
