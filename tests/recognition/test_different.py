"""Programs that compute something else have another key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recognition import meaning
from tests.recognition.corpus import NAMES, read
from tests.recognition.measured import change


@pytest.fixture(scope="module")
def interpreter() -> Iterator[meaning.Interpreter]:
    with meaning.Interpreter() as process:
        yield process


@pytest.mark.parametrize("name", NAMES)
def test_no_change_of_meaning_keeps_the_key(name: str, interpreter: meaning.Interpreter) -> None:
    assert change(read(name), 8, interpreter, confirm=False).collisions == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_none_of_two_hundred_changes_keeps_the_key(name: str, interpreter: meaning.Interpreter) -> None:
    found = change(read(name), 200, interpreter, confirm=True)
    print(f"{name}: {found}")
    assert found.collisions == []
