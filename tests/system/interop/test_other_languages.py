"""Clients that share no code with ours: JavaScript with stubs from protos/ alone, C with one call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcache_grpc import Graph
from kcache_grpc.model.sizes.expression import evaluate
from kcache_grpc.model.target import host_target
from tests.serving import ServerProcess

HERE = Path(__file__).parent
PROTOS = HERE.parents[2] / "protos"
NODE = Path(sys.executable).with_name("node")
PROGRAM = """
module @any_name {
  func.func @main(%x: tensor<300x70xf32>, %w: tensor<70x50xf32>, %b: tensor<50xf32>) -> tensor<300x50xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<300x70xf32>, tensor<70x50xf32>) -> tensor<300x50xf32>
    %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<50xf32>) -> tensor<300x50xf32>
    %2 = stablehlo.add %0, %1 : tensor<300x50xf32>
    %3 = stablehlo.tanh %2 : tensor<300x50xf32>
    return %3 : tensor<300x50xf32>
  }
}
"""


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A kernel that the JavaScript client fetched, and what it saw."""
    return fetch(tmp_path_factory.mktemp("node"))


def fetch(folder: Path, *bound: str) -> tuple[Path, dict[str, Any]]:
    """The kernel with these inputs bound, which are given as the client takes them."""
    if not NODE.exists() or not (HERE / "node" / "node_modules").exists():
        pytest.skip("needs Node.js and its packages, which `make test` installs")
    program = folder / "program.mlir"
    program.write_text(PROGRAM)
    with ServerProcess(folder) as server:
        command = [
            NODE,
            HERE / "node" / "client.js",
            server.address,
            PROTOS,
            program,
            host_target().isa,
            folder,
            *bound,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "kernel.so", json.loads(done.stdout)


@pytest.mark.skipif(not (HERE / "node" / "node_modules").exists(), reason="needs the packages of Node.js")
def test_a_graph_made_in_javascript_has_the_key_of_its_stablehlo(tmp_path: Path) -> None:
    program = tmp_path / "program.mlir"
    program.write_text(PROGRAM)
    with ServerProcess(tmp_path) as server:
        command = [NODE, HERE / "node" / "graph.js", server.address, PROTOS, program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["graph"] == seen["text"] == 1
    assert seen["error"] == "node 0 'y' (softmax): axis is 7, for a value of rank 2: use -2 to 1"
    assert [value.name for value in Graph.from_bytes(bytes.fromhex(seen["body"])).outputs] == ["y"]


def test_a_javascript_client_compiles_verifies_and_resumes(fetched: tuple[Path, dict[str, Any]]) -> None:
    _, seen = fetched
    assert seen["key"] == 1
    assert seen["origin"] == "ORIGIN_COMPILED"
    assert seen["status"] == "KERNEL_STATUS_FOUND"
    assert seen["same_manifest"]
    assert seen["stages"][:3] == ["canonicalize", "store", "queued"]
    assert seen["stages"][-1] == "publish"
    assert len(seen["stages"]) > 5


@pytest.mark.parametrize("threads", [{}, {"KERNEL_POOL": "1"}], ids=["its own", "the kernel's"])
def test_a_c_program_runs_the_kernel_with_threads(
    fetched: tuple[Path, dict[str, Any]], tmp_path: Path, threads: dict[str, str]
) -> None:
    library, seen = fetched
    run_in_c(library, seen, tmp_path, [], threads)


def test_a_c_program_prepares_what_a_javascript_client_had_bound(tmp_path: Path) -> None:
    library, seen = fetch(tmp_path, "1,2")
    preparation = seen["preparation"]
    assert preparation["arguments"] == [1, 2]
    workspace = evaluate(preparation["workspace"], {"workers": 1})
    run_in_c(library, seen, tmp_path, [str(preparation["bytes"]), str(workspace), "2"], {})


def run_in_c(
    library: Path, seen: dict[str, Any], folder: Path, prepare: list[str], threads: dict[str, str]
) -> None:
    """Call the kernel once and compare the result. ``prepare``: what the program takes of bound inputs."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    runner = folder / "runner"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1"]
    subprocess.run([compiler, *flags, HERE / "runner.c", "-o", runner, "-ldl", "-lpthread"], check=True)

    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape).astype(np.float32) / 8 for shape in ((300, 70), (70, 50), (50,))]
    paths = [folder / f"input{index}" for index in range(3)]
    for path, array in zip(paths, arrays, strict=True):
        path.write_bytes(array.tobytes())
    workspace = evaluate(seen["workspace"], {"workers": 3})
    inputs = [*prepare, *paths[1:], paths[0]] if prepare else paths
    command = [runner, library, str(workspace), str(300 * 50 * 4), *inputs]
    environment = {"PATH": os.environ["PATH"], **threads}
    done = subprocess.run(command, capture_output=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr

    x, w, b = (array.astype(np.float64) for array in arrays)
    got = np.frombuffer(done.stdout, np.float32).reshape(300, 50)
    np.testing.assert_allclose(got, np.tanh(x @ w + b), rtol=2e-5, atol=2e-6)
