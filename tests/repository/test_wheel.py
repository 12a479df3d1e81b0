"""What is in the wheel, and that a command line comes with it."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile

import pytest

from tests.repository.sources import PACKAGES, ROOT

pytest.importorskip("hatchling", reason="builds a wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=240)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        yield archive


def test_three_packages_and_nothing_else(wheel):
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_every_module_is_in_it(wheel):
    wanted = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in {".py", ".pyi", ".typed", ".mako", ".sql", ".h"}
    }
    assert wanted <= set(wheel.namelist())


def test_protos_travel_with_the_code_made_from_them(wheel):
    sources = {path.relative_to(ROOT / "protos").as_posix() for path in (ROOT / "protos").rglob("*.proto")}
    assert {f"kcache_grpc/_proto/{source}" for source in sources} <= set(wheel.namelist())


def test_command_line_and_license(wheel):
    entry_points = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    parsed = configparser.ConfigParser()
    parsed.read_string(wheel.read(entry_points).decode())
    assert parsed["console_scripts"]["kcache"] == "kcache_grpc.cli:main"
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
