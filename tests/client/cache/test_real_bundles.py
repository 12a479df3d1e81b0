"""Bundles of real kernels, in processes that have the light client only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.bundle import SpecEntry
from kcache_grpc.errors import Unavailable
from kcache_grpc.model.signing import Signer, server_id
from tests.bundle.making import metadata_of, stored_entries, written
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=20, point=3)


LIGHT = """
import importlib.abc, sys

BLOCKED = ("torch_mlir", "llvmlite", "sqlalchemy", "alembic", "grpc_health", "grpc_reflection", "onnx",
           "prometheus_client")
OURS = ("kcache_compiler", "kcache_migrations", "kcache_grpc.server", "kcache_grpc.service",
        "kcache_grpc.storage", "kcache_grpc.worker")

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in BLOCKED):
            raise ModuleNotFoundError(f"{name} is not on this machine", name=name)

sys.meta_path.insert(0, Block())
import numpy as np
import kcache_grpc as kcache

program, how, path, trust, cache = sys.argv[1:]
client = kcache.Client(cache_dir=cache, timeout=240)
if how == "preload":
    client.preload(path, trust=trust)
elif how == "import":
    client.import_bundle(path, trust=trust)
kernel = client.compile(program)
x = np.arange(12, dtype=np.float32).reshape(4, 3)
(y,) = kernel(x)
np.testing.assert_array_equal(y, x * 2)
assert not [name for name in OURS if name in sys.modules]
print(kernel.origin)
"""

DOUBLE = (
    "func.func @main(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {\n"
    "  %c = stablehlo.constant dense<2.0> : tensor<4x3xf32>\n"
    "  %0 = stablehlo.multiply %x, %c : tensor<4x3xf32>\n"
    "  return %0 : tensor<4x3xf32>\n}\n"
)


WIDE = DOUBLE.replace("4x3", "7x3")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A bundle of real kernels, static, dynamic and automatic, and the identity of its signer."""
    folder = tmp_path_factory.mktemp("real")
    with (
        ServerProcess(folder / "server") as server,
        kcache.Client(server.address, cache_dir=folder / "maker", strict=True) as client,
    ):
        client.compile(DOUBLE)
        client.compile(WIDE)
        client.compile([DOUBLE, WIDE], dynamic=True)
        graph = client.normalize(DOUBLE)
    stored = {(entry.kind, entry.name): entry for entry in stored_entries(folder / "maker")}
    entries = [SpecEntry(graph.digest, graph.text, "default", 1), *stored.values()]
    signer = Signer.from_file(next((folder / "server" / "state").glob("**/*key*")))
    path = folder / "real.kcb"
    path.write_bytes(written(entries, signer, metadata_of(entries)))
    return path, server_id(signer.public_key)


def test_a_machine_with_the_light_client_alone_runs_the_kernels_of_a_bundle(
    real: tuple[Path, str], tmp_path: Path
) -> None:
    path, trust = real
    for how, origin in (("preload", "preloaded"), ("import", "disk"), ("again", "disk")):
        command = [sys.executable, "-c", LIGHT, DOUBLE, how, str(path), trust, str(tmp_path / "cache")]
        ran = subprocess.run(command, capture_output=True, text=True, env=_light_environment())
        assert (ran.returncode, ran.stdout.strip()) == (0, origin), ran.stderr


@pytest.mark.parametrize("how", ["preload", "import_bundle"])
def test_kernels_for_all_sizes_and_automatic_ones(
    real: tuple[Path, str], alone: Callable[..., kcache.Client], how: str
) -> None:
    path, trust = real
    client = alone()
    getattr(client, how)(path, trust=trust)
    origin = {"preload": "preloaded", "import_bundle": "disk"}[how]
    dynamic = client.compile([DOUBLE, WIDE], dynamic=True)
    assert (dynamic.origin, dynamic.manifest.arg_spec) == (origin, "f32[s0,3]")
    for rows in (4, 7, 19):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(dynamic(x)[0], 2 * x)
    # Of kernels that take the sizes of the program, the most specific one.
    assert client.compile(DOUBLE, dynamic="auto").manifest.arg_spec == "f32[4,3]"
    assert client.compile(DOUBLE, dynamic="auto").origin == "memory"
    # Evidence that the bundle does not have, and a dynamic kernel without evidence, are for a service.
    for program in ([DOUBLE, DOUBLE.replace("4x3", "9x3")], DOUBLE):
        with pytest.raises(Unavailable):
            client.compile(program, dynamic=True)


FORKED = """
import os, sys
import kcache_grpc as kcache

program, path, trust, cache = sys.argv[1:]
client = kcache.Client(cache_dir=cache, timeout=240)
client.preload(path, trust=trust)
child = os.fork()
if child == 0:
    os._exit(0 if client.compile(program).origin == "preloaded" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert client.compile(program).origin == "preloaded"
"""


def test_a_forked_child_uses_the_bundles_of_its_parent(real: tuple[Path, str], tmp_path: Path) -> None:
    path, trust = real
    command = [sys.executable, "-c", FORKED, WIDE, str(path), trust, str(tmp_path / "cache")]
    ran = subprocess.run(command, capture_output=True, text=True, env=_light_environment())
    assert ran.returncode == 0, ran.stderr


def _light_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KCACHE_")}
