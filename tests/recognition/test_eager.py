"""What graphs of the corpus are said to compute is what their programs compute, by the interpreter."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.compiler.codegen_harness import NUMPY
from tests.recognition.eager.arguments import draw
from tests.recognition.eager.close import largest_share
from tests.recognition.eager.functions import FUNCTIONS, evaluate
from tests.recognition.exports.corpus import NAMES, read
from tests.recognition.meaning import Arrays, Interpreter
from tests.recognition.mutations import edit


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as started:
        yield started


def _arguments(name: str, text: str) -> Arrays:
    generator = np.random.default_rng(0)
    drawn: Arrays = []
    module = edit.parse(text)
    for position, argument in enumerate(edit.body(edit.main_of(module)).arguments):
        match = re.fullmatch(r"tensor<((?:\d+x)*)(\w+)>", str(argument.type))
        assert match, argument.type
        shape = tuple(int(dim) for dim in match[1].split("x") if dim)
        drawn.append(draw(name, position, shape, NUMPY[match[2]], generator))
    return drawn


def _compare(interpreter: Interpreter, name: str, text: str) -> None:
    arguments = _arguments(name, text)
    wanted = interpreter(text, arguments)
    assert not isinstance(wanted, str), wanted
    assert largest_share(wanted, evaluate(name, arguments)) <= 1


def test_every_graph_has_a_function() -> None:
    assert sorted(FUNCTIONS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_function_is_the_program(interpreter: Interpreter, name: str) -> None:
    _compare(interpreter, name, read(name).texts[1])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_function_is_the_program_at_all_its_sizes(interpreter: Interpreter, name: str) -> None:
    for text in read(name).texts:
        _compare(interpreter, name, text)
