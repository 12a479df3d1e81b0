"""Installs into environments of their own, as users make them: `make test-long`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.repository.sources import ROOT
from tests.runtime.gpu.recorded import driver_folder

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

RUNTIMES = {
    "oldest": ["protobuf==6.31.1", "grpcio==1.75.1"],
    "protobuf-6": ["protobuf>=6,<7"],
    "protobuf-7": ["protobuf>=7,<8"],
}
ROUND_TRIP = """
import google.protobuf
from kcache_grpc._proto.kcache.v1 import common_pb2, kernel_cache_pb2_grpc
header = common_pb2.RequestHeader(namespace="default", request_id="1")
assert common_pb2.RequestHeader.FromString(header.SerializeToString()) == header
assert kernel_cache_pb2_grpc.KernelCacheServicer
print(google.protobuf.__version__)
"""
EMBEDDED = """
import kcache_grpc as kcache
try:
    with kcache.Client() as client:
        client.count()
except kcache.KcacheError as error:
    print(error)
"""


@pytest.fixture
def environment(tmp_path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    return tmp_path / "venv"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_generated_code_runs_on_both_majors_of_protobuf(environment, runtime):
    install(environment, str(ROOT), *RUNTIMES[runtime])
    version = python(environment, ROUND_TRIP)
    assert version.startswith("6." if runtime != "protobuf-7" else "7.")


def test_the_base_install_is_light_and_says_how_to_get_the_server(environment):
    install(environment, str(ROOT))
    installed = run(environment, "python", "-m", "pip", "list", "--format=freeze").lower()
    assert not re.search(r"^(torch-mlir|llvmlite|sqlalchemy|alembic)==", installed, re.MULTILINE)
    assert "pip install" in python(environment, EMBEDDED)
    assert "kcache-grpc[server]" in python(environment, EMBEDDED)
    assert "serve" in run(environment, "kcache", "--help")


def test_the_build_steps_of_the_image_give_a_healthy_server(tmp_path):
    prefix = tmp_path / "image"
    build = [str(ROOT / "deploy" / "build_image.sh"), str(prefix)]
    subprocess.run(build, check=True, env={**os.environ, "PYTHON": sys.executable}, timeout=800)
    settings = {**os.environ, **image_settings(), "PATH": f"{prefix}/bin:{os.environ['PATH']}"}
    settings["KCACHE_DB"] = f"sqlite:///{tmp_path}/kcache.sqlite"
    settings["KCACHE_LISTEN"] = settings["KCACHE_ADDR"] = f"127.0.0.1:{free_port()}"
    settings["XDG_CACHE_HOME"] = settings["XDG_RUNTIME_DIR"] = settings["HOME"] = str(tmp_path)
    server = subprocess.Popen(instruction("CMD", entry_point=True), env=settings, cwd=tmp_path)
    try:
        health = instruction("HEALTHCHECK")
        answers = (subprocess.run(health, env=settings, timeout=60, check=False) for _ in range(60))
        assert any(answer.returncode == 0 for answer in answers)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0


def test_a_replay_of_gpu_kernels_needs_numpy_and_cuda_bindings_alone(environment, tmp_path):
    packs = pytest.importorskip("tests.gpu.kit.packing.packs")
    packs.write(tmp_path / "pack", [packs.sources()["ops/compare-f32"]])
    install(environment, "numpy", "cuda-bindings")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def replay(**settings: str) -> subprocess.CompletedProcess[str]:
        line = [str(environment / "bin/python"), str(tmp_path / "pack/run.py")]
        return subprocess.run(line, env=clean | settings, capture_output=True, text=True, timeout=300)

    recorded = replay(LD_LIBRARY_PATH=str(driver_folder()))
    assert (recorded.returncode, "Recorded GPU" in recorded.stdout) == (1, True)
    done = replay()
    if done.returncode != 3:
        pytest.skip("this machine has a GPU")
    assert done.stderr.startswith("no GPU: nothing was executed")


def install(environment: Path, *requirements: str) -> None:
    run(environment, "python", "-m", "pip", "install", "--quiet", *requirements)


def python(environment: Path, program: str) -> str:
    return run(environment, "python", "-W", "error", "-c", program)


def run(environment: Path, command: str, *arguments: str) -> str:
    """The output of a command of the environment, away from the sources."""
    line = [str(environment / "bin" / command), *arguments]
    ran = subprocess.run(line, check=True, capture_output=True, text=True, cwd=environment, timeout=600)
    return ran.stdout


def image_settings() -> dict[str, str]:
    """The environment that the Dockerfile's last stage sets."""
    lines = re.findall(r"^ENV (.+)$", joined_dockerfile(), re.MULTILINE)
    pairs = [pair.partition("=") for line in lines for pair in shlex.split(line)]
    return {name: value for name, _, value in pairs if name != "PATH"}


def instruction(name: str, *, entry_point: bool = False) -> list[str]:
    """The command that instruction ``name`` of the Dockerfile runs."""
    text = joined_dockerfile()
    words = re.findall(r'"([^"]*)"', re.findall(rf"^{name} .*?(\[.*\])$", text, re.MULTILINE)[-1])
    return (instruction("ENTRYPOINT") if entry_point else []) + words


def joined_dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
