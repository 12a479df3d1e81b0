"""Values of command-line options: lists of names and of numbers of threads."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection


def names(known: Collection[str]) -> Callable[[str], list[str]]:
    """Read a list such as ``a,b`` of ``known`` names."""

    def read(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]}; there are {', '.join(known)}")
        return chosen

    return read


def counts(text: str) -> list[int]:
    """Read a list such as ``1,2`` of numbers of CPUs of this process."""
    numbers = [int(part) for part in text.split(",")]
    most = len(os.sched_getaffinity(0))
    if not all(1 <= number <= most for number in numbers):
        raise argparse.ArgumentTypeError(f"numbers from 1 to {most}, the CPUs of this process")
    return numbers
