"""Programs that compute something else have another key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recognition import meaning
from tests.recognition.exports.corpus import NAMES, read
from tests.recognition.measured import change, key
from tests.recognition.mutations.changing_constants import nudged


@pytest.fixture(scope="module")
def interpreter() -> Iterator[meaning.Interpreter]:
    with meaning.Interpreter() as process:
        yield process


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", NAMES)
def test_no_change_of_meaning_keeps_the_key(name: str, interpreter: meaning.Interpreter) -> None:
    assert change(read(name), 8, interpreter, confirm=False).collisions == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_none_of_two_hundred_changes_keeps_the_key(name: str, interpreter: meaning.Interpreter) -> None:
    result = change(read(name), 200, interpreter, confirm=True)
    print(f"{name}: {result}")
    assert result.collisions == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_constants_that_differ_in_the_last_bit_have_other_keys(
    name: str, interpreter: meaning.Interpreter
) -> None:
    """Under ``strict``, unless no bit of a result depends on it: ``sqrt`` rounds it away."""
    text = read(name).texts[3]
    wanted = key(text, "strict")
    for other in nudged(text):
        if key(other, "strict") == wanted:
            inputs, results = interpreter.remembered(text, 1)
            again = interpreter(other, inputs)
            assert not isinstance(results, str)
            assert not isinstance(again, str)
            assert [r.tobytes() for r in results] == [r.tobytes() for r in again]
