"""What may import what, beyond what import-linter can say; and that every import is declared."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.repository.sources import PACKAGES, ROOT, imports, third_party

SERVER_SIDE = re.compile(
    r"kcache_(compiler|migrations)|kcache_grpc\.(server|service|storage|worker|embedded)\b"
)
HEAVY = [
    "torch_mlir", "llvmlite", "sqlalchemy", "alembic", "grpc_health", "grpc_reflection",
    "kcache_compiler", "kcache_migrations", "torch", "jax", "onnx", "scipy",
]  # fmt: skip


def declared() -> dict[str, set[str]]:
    """Extra ("" for the base install) -> the distributions that it asks for."""
    by_extra: dict[str, set[str]] = {}
    for requirement in importlib.metadata.requires("kcache-grpc") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        assert name is not None
        by_extra.setdefault(extra[1] if extra else "", set()).add(normal(name[0]))
    return by_extra


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def providers(module: str) -> set[str]:
    """Distributions that ``module`` can come from; ``google`` is a namespace of several."""
    if module.startswith("google.rpc"):
        return {"googleapis-common-protos"}
    if module.startswith("google"):
        return {"protobuf"}
    root = module.partition(".")[0]
    return {normal(each) for each in installed().get(root, [root])}


@functools.cache
def installed() -> Mapping[str, list[str]]:
    """Top-level module -> the distributions that bring it. Reads every installed distribution: once."""
    return importlib.metadata.packages_distributions()


def test_every_import_is_declared_where_it_is_needed():
    extras = declared()
    base, server = extras[""], extras[""] | extras["server"]
    anything = set().union(*(extras[extra] for extra in extras if extra not in ("dev", "bench")))
    wrong = []
    for each in third_party():
        eager = server if SERVER_SIDE.match(each.importer) else base
        if not providers(each.module) & (anything if each.lazy else eager):
            wrong.append(str(each))
    assert wrong == []


def test_everything_declared_for_the_client_and_the_server_is_imported():
    used = set().union(*(providers(each.module) for each in third_party()))
    extras = declared()
    generated = {"grpcio", "protobuf"}
    assert extras[""] | extras["server"] <= used | generated


def test_migrations_import_alembic_and_sqlalchemy_only():
    allowed = {"alembic", "sqlalchemy", "kcache_migrations"} | sys.stdlib_module_names
    ours = [each for each in imports() if each.importer.startswith("kcache_migrations")]
    assert [str(each) for each in ours if each.root not in allowed] == []


def test_the_bridge_to_the_embedded_service_is_crossed_lazily():
    crossings = [each for each in imports() if each.module.startswith("kcache_grpc.embedded")]
    assert [str(each) for each in crossings if not each.lazy] == []


def test_no_pickle_anywhere():
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    assert [str(each) for each in imports() if each.root in forbidden] == []


@pytest.mark.parametrize("module", ["kcache_grpc", "kcache_grpc.cli"])
def test_the_client_imports_without_the_server_extra(module):
    loaded = loaded_by(f"import {module}")
    assert [name for name in HEAVY if name in loaded] == []


def test_the_synchronous_client_imports_no_grpc_and_no_rare_requests():
    rare = ["bundle", "client.bundles.imported", "client.service_requests", "client.requests.graphs"]
    rare += ["client.tuning.timings", "client.values", "programs.jax", "programs.onnx.weights"]
    loaded = loaded_by("import kcache_grpc.client.client")
    unused = ["grpc", "google.rpc", "platformdirs", *(f"kcache_grpc.{name}" for name in rare)]
    assert [name for name in unused if name in loaded] == []


def test_the_compiler_imports_without_loading_mlir():
    loaded = loaded_by("import kcache_compiler")
    assert [name for name in ("torch_mlir", "llvmlite", "grpc", "google.protobuf") if name in loaded] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed_and_documented(package):
    folder = PACKAGES[package]
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    if package != "kcache_migrations":
        assert (folder / "py.typed").exists()


def test_a_server_start_loads_neither_numpy_nor_frontends_nor_metrics():
    loaded = loaded_by("import kcache_grpc.server, kcache_grpc.storage.sql.store")
    assert "kcache_compiler.types" in loaded
    assert not loaded & {"numpy", "prometheus_client", "kcache_compiler.frontends.program", "alembic"}


def loaded_by(statement: str) -> set[str]:
    """The modules in a fresh interpreter after ``statement``."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT, timeout=240
    )
    return set(json.loads(ran.stdout))


@pytest.mark.long
def test_every_file_of_tests_is_collected_without_pytorch():
    """A registry may have no PyTorch for this Python. One file that needs it would end the whole run."""
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "torch" in path.read_text()]
    program = f"""
import sys
import pytest
sys.modules["torch"] = None
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *{files!r}]))
"""
    collected = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True, timeout=280
    )
    assert collected.returncode == 0, collected.stdout[-2000:]
