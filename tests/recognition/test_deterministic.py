"""The digest of a program is the same in every process, and that of its rendered spec is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.types import NUMERICS
from tests.recognition.exports.corpus import NAMES, read
from tests.recognition.measured import key

_DIGESTS = """
from tests.recognition.exports.corpus import NAMES, read
from tests.recognition.measured import key
print(*[key(read(name).texts[index]) for name in NAMES for index in (0, 3)])
"""


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_hash_seeds_do_not_change_digests(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.split() == [key(read(name).texts[index]) for name in NAMES for index in (0, 3)]


def read_back(text: str, numerics: str, erasing: bool) -> tuple[str, str]:
    """Return a program's spec, with sizes erased or not, and that of its rendered spec, at its own sizes."""
    form = canonicalize(text.encode(), "stablehlo", numerics)
    wanted = canonicalize(text.encode(), "stablehlo", numerics, erasing=erasing)
    constants = {len(form.arg_spec.args) + c.position: c.digest for c in form.constants}
    rendered = render(form.spec_text, form.arg_spec).encode()
    again = canonicalize(rendered, "stablehlo", numerics, lifted=constants, erasing=erasing)
    return wanted.spec_text, again.spec_text


@pytest.mark.sampled(24)
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", NAMES)
def test_a_spec_at_the_sizes_of_a_program_is_the_program(name: str, numerics: str) -> None:
    """The law that makes erasure sound, by way of the text that is compiled."""
    entry = read(name)
    for text in (entry.texts[0], entry.texts[-1]):
        wanted, again = read_back(text, numerics, erasing=False)
        assert again == wanted


#: Rendered at given sizes, 1/N and N - 1 are numbers like any others: nothing shows that they were sizes.
NUMBERS_AFTERWARDS = {
    "cross_entropy",
    "layer_norm_gradient",
    "mean_variance",
    "mse_gradient",
    "transformer_block_gradient",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NUMBERS_AFTERWARDS])
def test_a_rendered_spec_is_read_back_as_itself(name: str) -> None:
    entry = read(name)
    for text in (entry.texts[0], entry.texts[-1]):
        wanted, again = read_back(text, "default", erasing=True)
        assert again == wanted
