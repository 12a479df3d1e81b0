"""The page of models: rows go to the table of their kind, and no other table changes."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

from tests.conformance.torch_compile.page import PAGE, with_rows

_MODEL = "| Llama | inference | 1.0e-09 |  | 1 | 1 | 100.0% | 100.0% |  |"
_LOOP = "| Adam, transformer | 2.0000 | 1.0000 | 1.0e-09 | 1e-04 |"


def test_the_rows_of_a_page_stay() -> None:
    text = PAGE.read_text()
    assert re.search(r"^\| Llama \| [\d.]+ s \|", text, re.MULTILINE), "another table names a model"
    assert with_rows(text, ()) == (text, [])


def test_rows_replace_those_of_their_name_and_mode() -> None:
    text = PAGE.read_text()
    changed, missing = with_rows(text, (_MODEL, "a line of a log", _LOOP))
    old, new = text.splitlines(), changed.splitlines()
    assert [after for before, after in zip(old, new, strict=True) if before != after] == [_MODEL, _LOOP]
    assert missing == []
