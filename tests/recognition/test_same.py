"""One computation has one key: however it is written, whatever its weights, batch and sequence sizes."""

from __future__ import annotations

import pytest

from tests.recognition.exports.corpus import NAMES, read
from tests.recognition.measured import key, write_differently


def test_the_corpus_is_whole() -> None:
    entries = [read(name) for name in NAMES]
    assert len(entries) >= 24
    assert {entry.framework for entry in entries} == {"jax", "torch", "onnx"}
    assert all(len(set(entry.texts)) == len(entry.texts) >= 6 for entry in entries)
    assert all(min(sizes[name] for sizes in entry.sizes) == 2 for entry in entries for name in entry.free)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NAMES)
def test_all_sizes_have_one_key(name: str) -> None:
    entry = read(name)
    keys = {key(text): sizes for text, sizes in zip(entry.texts, entry.sizes, strict=True)}
    assert len(keys) == 1, keys


def test_graphs_have_different_keys() -> None:
    assert len({key(read(name).texts[0]) for name in NAMES}) == len(NAMES)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NAMES)
def test_writing_it_differently_keeps_the_key(name: str) -> None:
    assert write_differently(read(name), range(6)).lost == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_two_hundred_writings_keep_the_key(name: str) -> None:
    result = write_differently(read(name), range(1000, 1200))
    print(f"{name}: {result}")
    assert result.lost == []
