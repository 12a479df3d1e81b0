"""What a process with a full cache directory imports, from ``torch.compile`` to the first result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

_PROGRAM = """
import json, sys
import torch
from kcache_grpc.torch import decisions

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
x = torch.randn(3, 4)
options = {"address": sys.argv[1], "strict": True, "rederive": 0.0}
with torch.no_grad():
    y = torch.compile(model, backend="kcache", options=options)(x)
    torch.testing.assert_close(y, model(x), rtol=1e-5, atol=1e-5)
print(json.dumps({"origins": [each.origin for each in decisions()], "modules": sorted(sys.modules)}))
"""

#: Packages and modules that a warm start has no use for; of a name, all that is below it too.
_UNUSED = (
    "google.rpc", "jax", "onnx", "platformdirs",
    "kcache_grpc.aio", "kcache_grpc.bundle", "kcache_grpc.graph",
    "kcache_grpc.caches.inductor", "kcache_grpc.caches.memory", "kcache_grpc.caches.remote",
    "kcache_grpc.client.bundles.imported", "kcache_grpc.client.bundles.preload",
    "kcache_grpc.client.requests.graphs", "kcache_grpc.client.service_requests",
    "kcache_grpc.client.tuning.timings", "kcache_grpc.client.values",
    "kcache_grpc.integrations.torch.dynamo.lowering.lower", "kcache_grpc.integrations.torch.dynamo.trace",
    "kcache_grpc.model.explanation", "kcache_grpc.programs.jax", "kcache_grpc.programs.onnx.weights",
    "kcache_grpc.programs.text_constants", "kcache_grpc.programs.torch",
)  # fmt: skip


def test_a_warm_start_imports_only_what_it_needs(address: str, tmp_path: Path):
    first, second = (_ran(address, tmp_path) for _ in range(2))
    assert (first["origins"], second["origins"]) == (["compiled"], ["warm"])
    loaded = [
        name for name in second["modules"] if any(f"{name}.".startswith(f"{each}.") for each in _UNUSED)
    ]
    assert loaded == []


def _ran(address: str, cache: Path) -> dict[str, list[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, address],
        env={**os.environ, "KCACHE_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])
