"""Kernels with sizes among their arguments are called with numbers: a real server, the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kcache_grpc as kcache
from tests.cli.command import answer
from tests.cli.command import kcache as command
from tests.compiler.frontends.test_size_arguments import CALLED, SHAPES
from tests.serving import ServerProcess


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=60) as connected:
        yield connected


def test_numbers_of_any_kind_are_sizes(client: kcache.Client) -> None:
    kernel = client.compile(CALLED)
    cases = ((3, 3), (np.int64(5), 5), (np.array(2), 2), (np.array([4]), 4), (np.zeros((3, 0), np.int64), 3))
    for n, rows in cases:
        x = np.ones((rows, 3), np.float32)
        for _ in range(2):
            (result,) = kernel(n, x)
            np.testing.assert_array_equal(result, x + np.arange(rows)[:, None])
    again = client.compile(CALLED)
    assert (again.origin, again.binding.size_arguments) == ("memory", (0,))


def test_tensors_of_pytorch_are_sizes(client: kcache.Client) -> None:
    torch = pytest.importorskip("torch")
    kernel = client.compile(CALLED)
    for n in (torch.tensor(4), 4):
        (result,) = kernel(n, torch.ones(4, 3))
        assert torch.equal(result, torch.ones(4, 3) + torch.arange(4)[:, None])


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (-1, r"argument 0 \(arg0\) must be a size, i64\[\]: got -1, and no size is below 0"),
        (
            2**31,
            r"argument 0 \(arg0\) must be a size, i64\[\]: got 2147483648, and no size is above 2147483647",
        ),
        (np.zeros((2**31, 0), np.int64), r"argument 0 \(arg0\) .* no size is above 2147483647"),
        (1.5, r"argument 0 \(arg0\) must be a size, i64\[\]: got a Python float"),
        (np.int32(2), r"argument 0 \(arg0\) must be a size, i64\[\]: got dtype i32; convert it to i64"),
        (np.array([2, 2]), r"argument 0 \(arg0\) must be a size, i64\[\]: got rank 1, shape \(2,\)"),
        (3, r"argument 1 \(arg1\) .* axis 0 is 2 instead of 3 \(s0 = 3 from axis 0 of argument 0\)"),
    ],
)
def test_what_is_no_size_is_rejected(client: kcache.Client, n: object, text: str) -> None:
    with pytest.raises(kcache.ArgumentError, match=text):
        client.compile(CALLED)(n, np.ones((2, 3), np.float32))


def test_a_list_of_sizes(client: kcache.Client) -> None:
    kernel, x = client.compile(SHAPES), np.arange(6, dtype=np.float32)
    whole, padded, _, _ = kernel(x, np.array([2, 3], np.int32), 1, 7)
    np.testing.assert_array_equal(whole, x.reshape(2, 3))
    np.testing.assert_array_equal(padded, np.pad(x, (1, 0)))
    with pytest.raises(kcache.ArgumentError, match=r"must be 2 sizes, i32\[2\]: got rank 0"):
        kernel(x, 6, 1, 7)
    with pytest.raises(kcache.ArgumentError, match="do not fit each other"):
        kernel(x, np.array([2, 2], np.int32), 1, 7)


def test_on_a_gpu_a_size_is_the_length_of_an_axis(client: kcache.Client) -> None:
    kernel = client.compile(CALLED, target="sm_90")
    assert [str(tensor) for tensor in kernel.manifest.inputs] == ["i64[s0,0]", "f32[s0,3]"]
    with pytest.raises(kcache.ArgumentError, match=r"argument 0 .* pass an array there without elements"):
        kernel(3, np.ones((3, 3), np.float32))


def test_the_command_line_takes_numbers_and_draws_sizes(server: ServerProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.mlir"
    program.write_text(CALLED)
    np.save(tmp_path / "n.npy", np.int64(5))
    where = ("--addr", server.address, "--cache-dir", tmp_path / "cache", "--json")
    done = answer(command("run", program, "--input", tmp_path / "n.npy", *where))
    assert done["results"][0]["shape"] == "5x3"
    drawn = answer(command("run", program, "--size", "6", *where))
    assert drawn["results"][0]["shape"] == "6x3"
    np.save(tmp_path / "n.npy", np.int64(-2))
    rejected = command("run", program, "--input", tmp_path / "n.npy", *where)
    assert "no size is below 0" in rejected.stderr
