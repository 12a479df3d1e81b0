"""``kcache explain`` against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import ADD, ADD_RENAMED
from tests.cli.conftest import Run


def write(folder: Path, name: str, text: str, dtype: str = "f32") -> Path:
    """A program of this module: no other test compiles for its sizes."""
    path = folder / name
    path.write_text(text.replace("4x8xf32", f"31x8x{dtype}"))
    return path


def test_a_hit_and_a_miss_as_json(served: Run, tmp_path: Path) -> None:
    file, renamed = write(tmp_path, "add.mlir", ADD), write(tmp_path, "renamed.mlir", ADD_RENAMED)
    space = ("--namespace", "explain-json")
    assert served("explain", file, *space, "--json").json()["step"] == "NAMESPACE_EMPTY"
    compiled = served("compile", file, *space, "--target", "x86-64-v3", "--json").json()
    hit = served("explain", file, *space, "--target", "x86-64-v3", "--json").json()
    assert (hit["hit"], hit["step"], hit["key"]) == (True, "FOUND_BY_PROGRAM", compiled["key"])
    assert hit["kernel_digest"] == compiled["kernel_digest"]
    other = served("explain", renamed, *space, "--target", "x86-64-v3", "--json").json()
    assert (other["step"], other["mappings"][0]["own"]) == ("FOUND_BY_SPEC", False)
    assert other["mappings"][0]["program_digest"] == hit["program_digest"]
    miss = served("explain", file, *space, "--target", "x86-64-v2", "--json").json()
    assert (miss["hit"], miss["step"]) == (False, "TARGET")
    (difference,) = miss["nearest"][0]["differences"]
    assert difference == {
        "name": "target",
        "yours": "x86-64-v2",
        "theirs": "x86-64-v3",
        "sentence": "compiled for x86-64-v3, you asked for x86-64-v2",
    }


def test_for_people(served: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "add.mlir", ADD)
    space = ("--namespace", "explain-people")
    served("compile", file, *space)
    hit = served("explain", file, *space)
    assert hit.code == 0
    assert hit.out.startswith("hit: this program was stored on ")
    doubled = write(tmp_path, "sub.mlir", ADD.replace("stablehlo.add", "stablehlo.subtract"))
    miss = served("explain", doubled, *space, "--dynamic", "auto").out
    assert miss.startswith("miss: no stored program has the same spec")
    said = (
        "yours is subtract of argument 0 and argument 1, the stored one is add of argument 0 and argument 1"
    )
    assert f"- operation 0: {said}" in " ".join(miss.split())
    assert "1. key 1, kernel " in miss


def test_a_word_that_is_no_mode(served: Run, add_file: Path) -> None:
    assert served("explain", add_file, "--dynamic", "perhaps").code == 5
