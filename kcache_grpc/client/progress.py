"""Progress events of a compile, as callers receive them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

Progress = Callable[[str, float], None]


class Stage(str):
    """The name of a stage, and how long the whole compile is expected to take.

    What ``on_progress`` is called with. ``expected_seconds`` is the service's estimate of the time from the
    start of the compile to its end; ``None`` without history, and for the first 0.2 s of a compile.
    """

    __slots__ = ("expected_seconds",)
    expected_seconds: float | None

    def __new__(cls, name: str, expected_seconds: float | None = None) -> Stage:
        stage = super().__new__(cls, name)
        stage.expected_seconds = expected_seconds
        return stage


def report_to_all(progress: Progress | None, listeners: Sequence[Sequence[Progress]]) -> Progress:
    """Calls ``progress`` of the request, then those of requests that joined it, whose errors are ignored."""

    def report(stage: str, seconds: float) -> None:
        if progress is not None:
            progress(stage, seconds)
        for group in listeners:
            for listener in tuple(group):
                with contextlib.suppress(Exception):
                    listener(stage, seconds)

    return report
