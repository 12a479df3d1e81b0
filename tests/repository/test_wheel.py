"""What is in the wheel, and that a command line comes with it."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.repository.sources import PACKAGES, ROOT

pytest.importorskip("hatchling", reason="builds a wheel")
EXTENSION = "kcache_grpc/runtime/_fastcall"
_SHIPPED = {".py", ".pyi", ".typed", ".mako", ".sql", ".h", ".c", ".ll", ".txt"}
has_lock = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="no extension module for this interpreter"
)


def build(folder, **environment) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    settings = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=settings, check=False
    )


def extensions(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name.startswith(EXTENSION) and name.endswith(".so")]


def header(archive: zipfile.ZipFile) -> str:
    return archive.read(
        next(name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
    ).decode()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        yield archive


@has_lock
def test_the_extension_module_is_in_it_once_and_the_tag_says_so(wheel, tmp_path):
    [name] = extensions(wheel)
    assert "Root-Is-Purelib: false" in header(wheel)
    stable = sys.version_info >= (3, 11)
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert f"Tag: {'cp311-abi3' if stable else f'{own}-{own}'}-linux_" in header(wheel)
    assert (name == f"{EXTENSION}.abi3.so") == stable
    wheel.extractall(tmp_path)
    program = (
        "from kcache_grpc.runtime.cpu.fast_call import extension; print(extension().call_type.__module__)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert shown.stdout.strip() == "kcache_grpc.runtime._fastcall"


@pytest.mark.parametrize(
    ("environment", "warning"),
    [
        ({"CC": "/no/compiler"}, "calls go through cffi"),
        ({"CC": "false"}, "false -O2"),
        ({"KCACHE_EXTENSION": "off"}, ""),
    ],
    ids=["no compiler", "no headers", "off"],
)
def test_without_a_compiler_it_is_for_every_machine(tmp_path, environment, warning):
    done = build(tmp_path, **environment)
    assert (done.returncode, warning in done.stderr + done.stdout) == (0, True)
    [file] = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(file) as archive:
        assert extensions(archive) == []
        assert "Root-Is-Purelib: true" in header(archive)
        assert f"{EXTENSION}.c" in archive.namelist()


def test_a_release_can_require_the_extension_module(tmp_path):
    done = build(tmp_path, CC="/no/compiler", KCACHE_EXTENSION="require")
    assert done.returncode != 0
    assert "NotBuilt" in done.stderr
    assert not list(tmp_path.iterdir())


@has_lock
def test_an_editable_installation_builds_it_in_place(tmp_path):
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for source in (".c", ".pyi"):
        (tmp_path / EXTENSION).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy((ROOT / EXTENSION).with_suffix(source), (tmp_path / EXTENSION).with_suffix(source))
    program = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
    for _ in range(2):  # the second time over the first one's
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "wheels")], cwd=tmp_path, timeout=240, check=True
        )
        [built] = (tmp_path / "kcache_grpc" / "runtime").glob("*.so")
        assert built.name.startswith(Path(EXTENSION).name)
        assert len(list(built.parent.iterdir())) == 3


def test_three_packages_the_module_of_the_log_and_nothing_else(wheel):
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {*PACKAGES, "kcache.py"}


def test_every_module_is_in_it(wheel):
    wanted = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in _SHIPPED
    }
    assert wanted <= set(wheel.namelist())


def test_protos_travel_with_the_code_made_from_them(wheel):
    sources = {path.relative_to(ROOT / "protos").as_posix() for path in (ROOT / "protos").rglob("*.proto")}
    assert {f"kcache_grpc/_proto/{source}" for source in sources} <= set(wheel.namelist())


def test_entry_points_and_license(wheel):
    entry_points = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    parsed = configparser.ConfigParser()
    parsed.read_string(wheel.read(entry_points).decode())
    assert parsed["console_scripts"]["kcache"] == "kcache_grpc.cli:main"
    backend = parsed["torch_dynamo_backends"]["kcache"]
    assert backend == "kcache_grpc.integrations.torch.dynamo.backend:kcache"
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
