"""The benchmark of kernels: its table, its references, its sums."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("torch")

import jax

from benchmarks.kernels import table
from benchmarks.kernels.bars import Bar, bars
from benchmarks.kernels.case import Case, error_of, flat, shape_of
from benchmarks.kernels.contenders import blas, pytorch
from benchmarks.kernels.contenders.stopwatch import tree_seconds
from benchmarks.kernels.kept import Allowance, Kept
from benchmarks.kernels.limits import Limits
from benchmarks.kernels.page import BEGIN, PAGE, replaced, side_by_side
from benchmarks.kernels.settled import settled
from benchmarks.kernels.summary import best_rival, by_group, geometric_mean, ratios, share
from benchmarks.kernels.table import contractions, graphs, pointwise, rows, shuffles

#: Every function of the table, at sizes that take no time.
TINY = [
    pointwise.exp_add(5, "5"),
    pointwise.gelu_bias(3, 5),
    pointwise.swiglu(3, 5),
    pointwise.hypot(7),
    pointwise.adam(6),
    rows.row_sum((3, 5)),
    rows.row_max((3, 5)),
    rows.softmax((3, 5)),
    rows.layer_norm((3, 5)),
    rows.rms_norm((3, 5)),
    rows.cross_entropy((3, 5)),
    rows.batch_statistics((2, 3, 4)),
    rows.column_sum((3, 5)),
    rows.column_max((3, 5)),
    rows.column_softmax((3, 5)),
    shuffles.transpose(3, 5),
    shuffles.transpose_add(4),
    shuffles.channels_last(2, 3, 4),
    shuffles.gather(7, 3, 4),
    shuffles.scatter_add(7, 3, 4),
    shuffles.cumsum(3, 5),
    shuffles.sort(3, 5),
    shuffles.top_k(3, 5, 2),
    contractions.matmul(3, 4, 5),
    contractions.turned("nt", 4),
    contractions.turned("tn", 4),
    contractions.batched(2, 3, 4),
    contractions.bias_relu(3, 4, 5),
    contractions.bias_gelu(3, 4, 5),
    contractions.convolution("3x3", 2, 3, 4, 5, 3),
    contractions.convolution("1x1", 2, 3, 4, 5, 1),
    contractions.grouped("depthwise_3x3", 2, 3, 3, 5, 3),
    contractions.grouped("depthwise_5x5", 1, 3, 3, 6, 5),
    contractions.grouped("groups_3x3", 1, 6, 3, 4, 3),
    contractions.attention(1, 2, 3, 3, causal=True),
    contractions.attention(1, 2, 1, 5, causal=False),
    graphs.mlp(2),
    graphs.block(1, 4, 8, 2),
    graphs.block_gradient(1, 4, 8, 2),
    graphs.resnet(1, 3, 4),
    graphs.lstm(2, 3),
    graphs.adam_step(3, 4),
]


def _doubled(case: Case) -> list[Any]:
    return [each if each.dtype.kind == "i" else each.astype(np.float64) for each in case.inputs()]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
def test_jax_and_torch_define_the_same_function(case: Case) -> None:
    """In f64 both agree to f64's rounding: what is compared with the reference is the same function."""
    expected = pytorch.reference(case, case.inputs())
    with jax.enable_x64(True):
        results = [np.asarray(each) for each in flat(jax.jit(case.jax)(*_doubled(case)))]
    assert [each.shape for each in results] == [each.shape for each in expected]
    assert max(error_of(got, due) for got, due in zip(results, expected, strict=True)) < 1e-12


@pytest.mark.parametrize("case", [case for case in TINY if case.numpy], ids=lambda case: case.name)
def test_numpy_computes_what_the_reference_does(case: Case) -> None:
    inputs = case.inputs()
    expected = pytorch.reference(case, inputs)
    built = blas.build(case, inputs, expected)
    results = built.read(built.call())
    assert max(error_of(got, due) for got, due in zip(results, expected, strict=True)) < case.tolerance


def test_the_table_is_well_formed() -> None:
    cases = table.all_cases()
    assert len(cases) >= 40
    assert len({case.name for case in cases}) == len(cases)
    assert all(shape_of(text) is not None for case in cases for text in case.args)
    quick = {case.group for case in cases if case.quick}
    assert quick == {case.group for case in cases} - {"matmul bf16"}
    odd = [
        case for case in cases if any(size % 2 for text in case.args for size in shape_of(text) if size > 1)
    ]
    assert len(odd) >= 5


def test_every_function_of_the_table_is_tried_at_tiny_sizes() -> None:
    tried = {case.name.partition("/")[0] for case in TINY}
    untried = {case.name.partition("/")[0] for case in table.all_cases()} - tried
    assert untried == {"tanh_mul_bf16", "matmul_bf16", "matmul_f64"}  # the same functions in other types


def test_a_wrong_result_shows() -> None:
    due = np.array([1.0, 100.0])
    assert error_of(np.array([1.0, 100.0]), due) == 0
    assert error_of(np.array([1.0, 101.0]), due) > 5e-3
    assert error_of(np.array([1.0, np.nan]), due) == float("inf")
    assert error_of(np.array([1.0]), due) == float("inf")


def _row(ours: float, **rivals: float) -> dict[str, Any]:
    seconds = {"kcache": ours, "kcache, buffers ready": ours, **rivals}
    contenders = {name: {"seconds": [value, 2 * value, value]} for name, value in seconds.items()}
    facts = {"group": "matmul", "threads": 1, "traffic": 4096, "least_s": 0.5, "bound": "compute"}
    return {"name": f"matmul/512x512x{int(ours * 8)}", **facts, "contenders": contenders}


def test_ratios_are_of_rounds_and_means_geometric() -> None:
    slow, fast = _row(2.0, JAX=1.0, NumPy=4.0), _row(1.0, JAX=8.0, NumPy=2.0)
    assert ratios(slow, "JAX") == (0.5, 0.5, 0.5)
    assert best_rival(fast) == "NumPy"
    groups = by_group([slow, fast], 1)["matmul"]
    assert groups["rivals"] == {"JAX": pytest.approx(2.0), "NumPy": pytest.approx(2.0)}
    assert groups["slowest"] == [slow["name"], 0.5]
    assert geometric_mean([]) is None


def test_bars_say_what_is_missed_and_what_was_not_measured() -> None:
    by_text = {bar.text: bar for bar in bars({"cases": [_row(2.0, NumPy=1.0), _row(1.0, NumPy=2.0)]}, 1)}
    worst = by_text["f32 matmul against the best of MKL and OpenBLAS, worst"]
    assert (worst.value, worst.met) == (0.5, False)
    assert by_text["f32 matmul against the best of MKL and OpenBLAS, geometric mean of 2"].met is True
    assert by_text["bf16 matmul of 1024 against our f32"].met is None
    assert Bar("compile", 100, 150, least=False).met is True


def test_the_gain_of_threads_stands_beside_the_machines_own() -> None:
    first, two = _row(2.0), _row(1.0)
    first.update(beat=[1.0, 1.0, 1.0])
    two.update(beat=[1.25, 1.25, 1.25], threads=2, name=first["name"])
    mean, worst = bars({"cases": [first, two]}, 2)[-2:]
    assert (mean.value, worst.where) == (pytest.approx(2.0), first["name"])
    assert "in the same rounds: 1.60" in mean.text


def test_a_copy_in_the_same_turns_is_the_limit_above_the_caches() -> None:
    row = _row(2.0)
    assert share(row) == 0.25
    row.update(bound="memory", beat=[1.0, 2.0, 1.5])
    assert share(row) == 0.5  # of 1/2, 2/4 and 1.5/2


def test_limits_are_measured_and_the_loops_by_hand_are_right(tmp_path: Path) -> None:
    limits = Limits(tmp_path)
    assert limits.peak > 1e9
    assert limits.bandwidth(1 << 14) > 1e8
    assert limits.beat()()
    limits.copying(1 << 12)()
    assert limits.least_seconds(1 << 14, 0.0)[1] == "memory"
    assert limits.least_seconds(1 << 14, 1e12)[1] == "compute"
    for case in (pointwise.exp_add(64, "64"), rows.rms_norm((3, 128)), pointwise.adam(64)):
        built = limits.build(case, inputs := case.inputs())
        results, due = built.read(built.call()), pytorch.reference(case, inputs)
        assert all(error_of(*pair) < case.tolerance for pair in zip(results, due, strict=True))


def test_a_turn_waits_until_others_sleep() -> None:
    """Beside a process that spins, and the same one stopped."""
    spinning = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spinning], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            tasks = Path(f"/proc/{child.pid}/task")
            assert not settled(0.01, tasks)
            child.send_signal(signal.SIGSTOP)
            assert settled(60, tasks)
        finally:
            child.kill()


def test_processor_time_of_a_process_only_grows() -> None:
    first = tree_seconds(os.getpid())
    sum(range(1_000_000))
    assert tree_seconds(os.getpid()) >= first > 0


def test_a_run_resumes_with_the_rows_that_its_file_has(tmp_path: Path) -> None:
    path, environment = tmp_path / "new" / "run.json", {"date": "then", "rounds": 5}
    first = Kept(path, environment, resume=True)
    first.add_machine({"threads": 2})
    first.add_case({"name": "a", "threads": 1})
    first.add_case({"name": "b", "threads": 1, "died": True})
    later = Kept(path, {**environment, "date": "now"}, resume=True)
    assert later.left(["a", "b"], 1) == ["b"]  # who died has another try
    assert later.left(["a", "b"], 2) == ["a", "b"]
    later.add_machine({"threads": 1})
    later.add_machine({"threads": 2, "again": True})
    assert later.found["machines"] == [{"threads": 1}, {"threads": 2, "again": True}]
    assert later.found["environment"] == {**environment, "resumed": ["now"]}
    assert json.loads(path.read_text()) == later.found
    assert Kept(path, environment, resume=False).found["cases"] == []
    with pytest.raises(SystemExit, match="rounds 5, now 6"):
        Kept(path, {**environment, "rounds": 6}, resume=True)


def test_no_kernel_starts_after_the_minutes() -> None:
    lines = [{"case": {}}, {"case": {}}]
    assert list(Allowance(None).during(iter(lines))) == lines
    assert list(Allowance(0).during(iter(lines))) == []


def test_the_page_sets_thread_counts_side_by_side() -> None:
    single, two = _row(2.0, JAX=1.0, NumPy=4.0), _row(2.0, JAX=1.0, NumPy=4.0)
    two["threads"] = 2
    for row in two["contenders"].values():
        row["seconds"] = [each / 2 for each in row["seconds"]]
    *_, line, _ = side_by_side({"cases": [single, two]}, 1, 2)
    assert line.startswith("| matmul/512x512x16 | 2,000,000.0 | 1,000,000.0 | 2.00 | 2.00 |")
    assert line.endswith("| 0.50 (JAX) | 0.50 (JAX) |")


def test_a_run_takes_the_place_of_the_one_that_the_page_has() -> None:
    rows = [_row(2.0, JAX=1.0), {**_row(1.0, JAX=8.0), "threads": 2}]
    copies = {"L1": 1.0, "L2": 1.0, "last level": 1.0, "memory": 1.0}
    machines = [
        {"threads": n, "fma_peak_gflops": n, "copy_gbps": copies, "core_types": {"MKL": "generic"}}
        for n in (1, 2)
    ]
    names = ("cpu", "cores", "target", "numerics", "rounds", "clock")
    environment = {
        **dict.fromkeys(names, "some"),
        "date": "2026-01-02T03:04",
        "budget": 0.01,
        "rivals": {"jax": "1"},
    }
    run = {"environment": {**environment, "inductor_cache": True}, "machines": machines, "cases": rows}
    text = replaced(PAGE.read_text(), run)
    assert "## Run of 2026-01-02" in text
    assert "### 2 threads\n\nSamples that began while other contenders' threads ran" in text
    assert "| matmul/512x512x16 |" in text
    assert "softmax/4096x64 |" not in text
    assert replaced(text, run) == text
    before = PAGE.read_text().partition(BEGIN)[0]
    assert text.startswith(before + BEGIN)
