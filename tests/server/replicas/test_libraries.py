"""A server keeps compiled libraries in its state folder: the next one links what it finds there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import kcache_grpc as kcache
from tests.serving import ServerProcess


def _product(size: int) -> str:
    kind = f"tensor<{size}x{size}xf32>"
    return f"""
      func.func @main(%a: {kind}) -> {kind} {{
        %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}
        return %0 : {kind}
      }}"""


def _compile(folder: Path, size: int) -> None:
    with (
        ServerProcess(folder, "--workers", "1") as server,
        kcache.Client(server.address, cache_dir=folder / f"cache-{size}", strict=True, timeout=240) as client,
    ):
        kernel = client.compile(_product(size))
        assert kernel.origin == "compiled"
        a = np.random.default_rng(size).standard_normal((size, size), np.float32)
        np.testing.assert_allclose(kernel(a)[0], a @ a, rtol=1e-4, atol=1e-4)


def test_a_restarted_server_has_the_libraries_of_the_one_before(tmp_path: Path) -> None:
    _compile(tmp_path, 40)
    folder = tmp_path / "state" / "libraries"
    [kept] = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    os.utime(kept, (0, 0))
    _compile(tmp_path, 50)
    assert list(folder.iterdir()) == [kept]
    assert kept.stat().st_mtime > 0, "it was used"
