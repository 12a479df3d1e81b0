"""The committed code generated from protos/: where it lives, and what it asks of its runtime."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re

import pytest

from tests.repository.sources import ROOT

GENERATED = ROOT / "kcache_grpc" / "_proto"
MODULES = sorted(GENERATED.rglob("*_pb2*.py"))
STUBS = sorted(GENERATED.rglob("*_pb2_grpc.py"))


def lower_bound(distribution: str) -> str:
    requirements = importlib.metadata.requires("kcache-grpc") or []
    matches = [re.match(rf"{distribution}\b.*>=([\d.]+)", each) for each in requirements]
    return next(match[1] for match in matches if match)


def test_there_is_generated_code_for_every_source():
    sources = {path.stem for path in (ROOT / "protos" / "kcache").rglob("*.proto")}
    assert {path.stem for path in GENERATED.rglob("*_pb2.py")} == {f"{source}_pb2" for source in sources}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_generated_module_has_types(path):
    assert path.with_suffix(".pyi").exists()


@pytest.mark.parametrize("path", [path for path in MODULES if path not in STUBS], ids=lambda path: path.stem)
def test_messages_run_on_the_oldest_protobuf_that_we_allow(path):
    version = re.search(r"^# Protobuf Python Version: ([\d.]+)$", path.read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == lower_bound("protobuf")


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.stem)
def test_stubs_run_on_the_oldest_grpc_that_we_allow(path):
    version = re.search(r"^GRPC_GENERATED_VERSION = '([\d.]+)'$", path.read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == lower_bound("grpcio")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_nothing_claims_a_top_level_name(path):
    roots = {
        (node.module or "").partition(".")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert "kcache" not in roots


def test_names_on_the_wire_are_those_of_the_package():
    module = importlib.import_module("kcache_grpc._proto.kcache.v1.kernel_cache_pb2")
    service = module.DESCRIPTOR.services_by_name["KernelCache"]
    assert service.full_name == "kcache.v1.KernelCache"


def test_async_and_plain_servicers_cover_the_service():
    module = importlib.import_module("kcache_grpc._proto.kcache.v1.kernel_cache_pb2")
    grpc_module = importlib.import_module("kcache_grpc._proto.kcache.v1.kernel_cache_pb2_grpc")
    service = module.DESCRIPTOR.services_by_name["KernelCache"]
    stub = (GENERATED / "kcache" / "v1" / "kernel_cache_pb2_grpc.pyi").read_text()
    for method in service.methods_by_name:
        assert hasattr(grpc_module.KernelCacheServicer, method)
        assert stub.count(f"    {method}: ") == 2
