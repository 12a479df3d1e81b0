"""The benchmark of whole models: its catalog, its ratios, and a run with processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rounds import Sample

pytest.importorskip("torch")

from benchmarks.models import catalog, growth, report, sequences
from benchmarks.models.child import distance
from benchmarks.torch_compile.models import Gpt2, Llama, rotated

ROW = {
    "error": 1e-6,
    "contenders": {
        "kcache": {"ready": 2.0, "error": 1e-6, "seconds": [0.010, 0.020, 0.010]},
        "kcache-bound": {"ready": 2.0, "error": 1e-6, "seconds": [0.010, 0.010, 0.020]},
        "eager": {"ready": 1.0, "error": 1e-6, "seconds": [0.030, 0.020, 0.040]},
        "openvino": {"reason": "openvino is not installed", "seconds": []},
    },
}
#: Parameters of the papers, in millions.
PARAMETERS = {"resnet18": 11.7, "mobilenetv3": 5.5, "densenet121": 8.0, "whisper-encoder": 8.2}


def test_the_table_has_medians_ranges_and_reasons() -> None:
    table = "\n".join(report.lines({"bert, 1 thread": ROW}, ["kcache", "kcache-bound", "eager", "openvino"]))
    assert "| best rival / kcache | best rival / kcache-bound |" in table
    assert (
        "| bert, 1 thread | 10.00 (10.00-20.00) | 10.00 (10.00-20.00) | 30.00 (20.00-40.00) | - "
        "| 3.00 (1.00-4.00), eager | 2.00 (2.00-3.00), eager |" in table
    )
    assert "geometric mean of eager / kcache over 1 rows: 3.00" in table
    assert "kcache-bound / kcache" not in table
    assert "bert, 1 thread: openvino: openvino is not installed" in table


def test_a_contender_with_a_reason_is_not_timed() -> None:
    wrong = {**ROW["contenders"]["eager"], "reason": "wrong"}  # type: ignore[index]
    samples = report.samples({"contenders": {**ROW["contenders"], "eager": wrong}})  # type: ignore[dict-item]
    assert list(samples) == ["kcache", "kcache-bound"]
    assert samples["kcache"] == Sample("kcache", (0.010, 0.020, 0.010))


def test_growth_is_a_slope_after_the_first_tenth_of_the_calls() -> None:
    leaking = [1_000_000, 5000 << 10, *((5000 + 3 * index) << 10 for index in range(1, 19))]
    assert growth.slope(leaking, 20_000) == pytest.approx(3 << 10)
    flat = [0, *[7] * 19]
    assert growth.slope(flat, 20_000) == 0
    samples = {"resident": leaking, "malloc": flat, "blocks": flat}
    assert growth.row("lstm", "kcache-bound", {"calls": 20_000, "samples": samples}) == (
        "| lstm | kcache-bound | 20,000 | 4.9 | +3.00 (+54.0) | +0.00 (+0.0) | +0.00 (+0.0) |"
    )


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_have_the_size_of_their_papers(name: str) -> None:
    module, inputs = catalog.instantiate(name)
    assert sum(each.numel() for each in module.parameters()) / 1e6 == pytest.approx(
        PARAMETERS[name], rel=0.01
    )
    assert all(each.shape[0] == 1 for each in inputs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_decoded_token_has_the_logits_of_the_whole_sequence(kind: str) -> None:
    """The caches are the keys and values that decoding earlier tokens with no cache would add."""
    import torch

    torch.manual_seed(0)
    decode: Any = {
        "gpt2": lambda: sequences.Gpt2Decode(Gpt2(layers=1)),
        "llama": lambda: sequences.LlamaDecode(Llama(layers=1)),
    }[kind]()
    model = decode.model.eval()
    tokens = torch.randint(0, 1000, (1, sequences.CACHE + 1))
    with torch.no_grad():
        expected = model(tokens)[:, -1]
        keys, values = _cached(kind, model, tokens[:, :-1])
        logits = decode(tokens[:, -1:], keys[None], values[None])[0][:, 0]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def _cached(kind: str, model: Any, tokens: Any) -> tuple[Any, Any]:
    import torch

    x, block = model.tokens(tokens), model.blocks[0]
    if kind == "gpt2":
        x = x + model.positions(torch.arange(tokens.shape[1]))
        parts = block.attention.inner(block.first(x)).split(x.shape[2], dim=2)[1:]
        keys, values = (part.view(1, -1, 12, 64).transpose(1, 2) for part in parts)
        return keys, values
    angles = torch.outer(torch.arange(tokens.shape[1]), 10000.0 ** (-torch.arange(0, 64, 2) / 64))
    angles, normed = torch.cat((angles, angles), -1), block.first(x)
    keys, values = (each(normed).view(1, -1, 8, 64).transpose(1, 2) for each in (block.key, block.value))
    return rotated(keys, angles.cos(), angles.sin()), values


def test_distances_are_relative_and_infinite_for_what_is_no_result() -> None:
    import torch

    exact = [torch.tensor([1.0, -4.0], dtype=torch.float64)]
    assert distance([torch.tensor([1.0, -5.0])], exact) == pytest.approx(17**-0.5)
    assert distance([torch.tensor([1.0, float("nan")])], exact) == float("inf")
    assert distance([torch.tensor([1.0])], exact) == float("inf")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.models", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.parametrize("dtype", catalog.DTYPES)
def test_weights_and_inputs_have_the_chosen_type(dtype: str) -> None:
    module, inputs = catalog.instantiate(catalog.SMOKE, dtype)
    assert {each.dtype for each in (*module.parameters(), *inputs)} == {catalog.DTYPES[dtype]}


@pytest.mark.long
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("dtype", catalog.DTYPES)
def test_contenders_are_checked_and_measured_in_processes_of_their_own(tmp_path: Path, dtype: str) -> None:
    file = tmp_path / "models.json"
    arguments = ("--models", "smoke", "--threads", "1", "--contenders", "kcache,eager,openvino")
    arguments += ("--dtype", dtype)
    done = _run(*arguments, "--rounds", "3", "--budget", "0.05", "--json", str(file))
    assert done.returncode == 0, done.stderr
    report_of_run = json.loads(file.read_text())
    contenders = report_of_run["rows"][report.key("smoke", 1, dtype)]["contenders"]
    for name in ("kcache", "eager"):
        assert len(contenders[name]["seconds"]) == 3
        assert min(contenders[name]["seconds"]) > 0
    assert contenders["openvino"].get("reason") or len(contenders["openvino"]["seconds"]) == 3
    assert contenders["kcache"]["decisions"]
    again = _run(*arguments, "--json", str(file))
    assert json.loads(file.read_text()) == report_of_run, again.stderr


def test_names_that_there_are_not_are_named() -> None:
    done = _run("--models", "alexnet")
    assert done.returncode == 2
    assert "there is no alexnet" in done.stderr


def test_charts_have_a_panel_for_each_model(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.models.pictures import draw

    rows = {
        f"{model}, {threads} threads": {**ROW, "model": model, "threads": threads}
        for model in ("bert", "vit")
        for threads in (1, 2)
    }
    environment = {"cpu": "a processor", "date": "2026-11-29"}
    paths = draw({"environment": environment, "rows": rows}, tmp_path)
    assert [path.name for path in paths] == ["models-1.png", "models-2.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
