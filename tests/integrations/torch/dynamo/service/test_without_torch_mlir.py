"""The backend in a process that has no torch-mlir, against a server that has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

_PROGRAM = """
import sys

for name in ("torch_mlir", "kcache_compiler", "llvmlite"):
    sys.modules[name] = None

import torch
from kcache_grpc.torch import decisions

torch.manual_seed(0)
layers = (torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
model = torch.nn.Sequential(*layers)
x = torch.randn(3, 4)
options = {"address": sys.argv[1], "strict": True, "warm_start": False}
compiled = torch.compile(model, backend="kcache", options=options)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
compiled(x).sum().backward()
gradients = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
model(x).sum().backward()
torch.testing.assert_close(gradients, [each.grad for each in model.parameters()], rtol=1e-4, atol=1e-5)
for decision in decisions():
    print(decision.kind, len(decision.kernels), len(decision.left_out), decision.origin)
"""


def test_it_compiles_and_trains(address: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::FutureWarning", "-c", _PROGRAM, address],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "inference 1 0 compiled",
        "forward 1 0 compiled",
        "backward 1 0 compiled",
    ]
