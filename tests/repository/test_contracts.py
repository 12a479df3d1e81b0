"""The import contracts in pyproject.toml forbid what the design forbids, and allow what it needs."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.repository.sources import ROOT

COMPILER_LAYERS = (
    *("support", "compile", "dynamic", "fingerprint", "pipelines", "lower", "passes", "difference", "spec"),
    *("frontends", "schedule", "versions", "llvm", "shapes", "mlir", "pause_gc", "types", "errors"),
)
MODULES = [
    "kcache_grpc/__init__.py",
    "kcache_grpc/errors.py",
    "kcache_grpc/aio.py",
    "kcache_grpc/embedded.py",
    "kcache_grpc/_proto/__init__.py",
    *(
        f"kcache_grpc/{part}/__init__.py"
        for part in (
            "bundle",
            "model",
            "storage",
            "service",
            "server",
            "worker",
            "client",
            "runtime",
            "graph",
            "cli",
        )
    ),
    "kcache_grpc/caches/__init__.py",
    "kcache_grpc/integrations/__init__.py",
    "kcache_grpc/jax.py",
    "kcache_grpc/onnx.py",
    "kcache_grpc/torch.py",
    "kcache_grpc/local_files.py",
    "kcache_grpc/programs/__init__.py",
    "kcache_grpc/client/remote.py",
    "kcache_compiler/__init__.py",
    *(f"kcache_compiler/{layer}/__init__.py" for layer in COMPILER_LAYERS),
    "kcache_migrations/__init__.py",
]
ALLOWED = [
    ("kcache_grpc.client.remote", "kcache_grpc.embedded"),
    ("kcache_grpc.client.remote", "kcache_grpc._proto"),
    ("kcache_grpc.client.remote", "kcache_grpc.runtime"),
    ("kcache_grpc.client.remote", "kcache_grpc.graph"),
    ("kcache_grpc.client.remote", "kcache_grpc.programs"),
    ("kcache_grpc.programs", "kcache_grpc.runtime"),
    ("kcache_grpc.programs", "kcache_grpc.graph"),
    ("kcache_grpc.programs", "kcache_grpc.local_files"),
    ("kcache_grpc.graph", "kcache_grpc._proto"),
    ("kcache_grpc.caches", "kcache_grpc.client"),
    ("kcache_grpc.integrations", "kcache_grpc.client"),
    ("kcache_grpc.jax", "kcache_grpc.integrations"),
    ("kcache_grpc.onnx", "kcache_grpc.integrations"),
    ("kcache_grpc.torch", "kcache_grpc.integrations"),
    ("kcache_grpc.client.remote", "kcache_grpc.bundle"),
    ("kcache_grpc.server", "kcache_grpc.bundle"),
    ("kcache_grpc.bundle", "kcache_grpc.model"),
    ("kcache_grpc.bundle", "kcache_grpc._proto"),
    ("kcache_grpc.aio", "kcache_grpc.client"),
    ("kcache_grpc.embedded", "kcache_grpc.service"),
    ("kcache_grpc.embedded", "kcache_grpc.storage"),
    ("kcache_grpc.server", "kcache_grpc.service"),
    ("kcache_grpc.service", "kcache_grpc.storage"),
    ("kcache_grpc.service", "kcache_grpc.worker"),
    ("kcache_grpc.storage", "kcache_migrations"),
    ("kcache_grpc.storage", "kcache_grpc.model"),
    ("kcache_grpc.worker", "kcache_compiler"),
    ("kcache_grpc.cli", "kcache_grpc.server"),
    ("kcache_grpc.cli", "kcache_grpc.client"),
    ("kcache_compiler.llvm", "llvmlite"),
    ("kcache_compiler.compile", "kcache_compiler.pipelines"),
    ("kcache_compiler.lower", "kcache_compiler.schedule"),
    ("kcache_compiler.spec", "kcache_compiler.frontends"),
    ("kcache_migrations", "sqlalchemy"),
]
FORBIDDEN = [
    ("kcache_compiler", "grpc"),
    ("kcache_compiler", "google.protobuf"),
    ("kcache_compiler", "sqlalchemy"),
    ("kcache_compiler", "kcache_grpc.model"),
    ("kcache_compiler.schedule", "kcache_compiler.passes"),
    ("kcache_compiler.frontends", "kcache_compiler.spec"),
    ("kcache_compiler.passes", "kcache_compiler.lower"),
    ("kcache_compiler.mlir", "kcache_compiler.llvm"),
    ("kcache_grpc.storage", "kcache_compiler"),
    ("kcache_grpc.storage", "torch_mlir"),
    ("kcache_grpc.storage", "kcache_grpc._proto"),
    ("kcache_grpc.storage", "kcache_grpc.service"),
    ("kcache_grpc.service", "kcache_grpc.server"),
    ("kcache_grpc.service", "llvmlite"),
    ("kcache_grpc.client.remote", "kcache_grpc.service"),
    ("kcache_grpc.client.remote", "kcache_compiler"),
    ("kcache_grpc.programs", "kcache_grpc.client"),
    ("kcache_grpc.programs", "kcache_compiler"),
    ("kcache_grpc.runtime", "kcache_grpc.programs"),
    ("kcache_grpc.runtime", "kcache_grpc.storage"),
    ("kcache_grpc.runtime", "kcache_grpc.embedded"),
    ("kcache_grpc.graph", "kcache_compiler"),
    ("kcache_grpc.caches", "kcache_grpc.storage"),
    ("kcache_grpc.integrations", "kcache_grpc.service"),
    ("kcache_grpc.client.remote", "kcache_grpc.integrations"),
    ("kcache_grpc.caches", "kcache_grpc.server"),
    ("kcache_grpc.model", "kcache_grpc.server"),
    ("kcache_grpc.model", "grpc"),
    ("kcache_grpc.bundle", "grpc"),
    ("kcache_grpc.bundle", "kcache_grpc.client"),
    ("kcache_grpc.bundle", "kcache_grpc.storage"),
    ("kcache_grpc.server", "kcache_grpc.embedded"),
    ("kcache_migrations", "kcache_grpc.model"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """Our packages as empty modules, with the contracts of this repository and the imports of ALLOWED."""
    folder = tmp_path_factory.mktemp("contracts")
    for module in MODULES:
        (folder / module).parent.mkdir(parents=True, exist_ok=True)
        (folder / module).write_text("")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for importer, imported in ALLOWED:
        with source(folder, importer).open("a") as file:
            file.write(f"import {imported}\n")
    return folder


def test_what_the_design_needs_is_allowed(tree):
    ran = lint(tree)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("importer", "imported"), FORBIDDEN)
def test_what_the_design_forbids_is_found(tree, importer, imported):
    file = source(tree, importer)
    before = file.read_text()
    file.write_text(f"{before}import {imported}\n")
    try:
        ran = lint(tree)
    finally:
        file.write_text(before)
    assert ran.returncode == 1
    assert "BROKEN" in ran.stdout


def source(folder: Path, module: str) -> Path:
    path = folder.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter in ``folder``, whose packages come before the installed ones."""
    command = [str(Path(sysconfig.get_path("scripts")) / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
