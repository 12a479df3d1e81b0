"""One service for several processes, and a service that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import kcache_grpc as kcache
from kcache_grpc.integrations.torch.dynamo import kernels
from tests.integrations.torch.dynamo.service import kill_loop

_RANK = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from kcache_grpc.torch import decisions, failures

rank, store, address, wrapped = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
class Model(nn.Module):
    # Dynamo does not trace functions of PyTorch alone, such as the forward of a module in DDP.
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    def forward(self, x):
        return self.layers(x)
model = Model()
if wrapped == "ddp":
    model = DistributedDataParallel(model)
elif wrapped == "fsdp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
elif wrapped == "dtensor":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    plan = {
        "layers.0": ColwiseParallel(output_layouts=Replicate()),
        "layers.3": RowwiseParallel(input_layouts=Replicate()),
    }
    parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
options = {"address": address, "namespace": wrapped, "strict": wrapped != "fsdp"}
compiled = torch.compile(model, backend="kcache", options=options)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dist.barrier()
losses = []
for step in range(3):
    torch.manual_seed(10 * step + (0 if wrapped == "dtensor" else rank))
    x = torch.randn(4, 6)
    expected = model(x).square().sum()
    loss = compiled(x).square().sum()
    torch.testing.assert_close(loss, expected)
    optimizer.zero_grad()
    loss.backward()
    if wrapped == "plain":
        for each in model.parameters():
            dist.all_reduce(each.grad)
    optimizer.step()
    losses.append(loss.item())
count = sum(len(decision.kernels) for decision in decisions())
weight = next(model.parameters())
weight = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
dist.barrier()
dist.destroy_process_group()
print(json.dumps([count, losses, weight.detach().sum().item(), failures()]))
"""


def ranks(address: str, tmp_path: Path, wrapped: str) -> list[list[object]]:
    """What two processes print; each has a cache directory of its own."""
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                _RANK,
                str(rank),
                str(tmp_path / "store"),
                address,
                wrapped,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "KCACHE_CACHE_DIR": str(tmp_path / f"cache-{rank}"), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=250)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.mark.long
@pytest.mark.parametrize("wrapped", [pytest.param("plain", marks=pytest.mark.long), "ddp"])
def test_two_ranks_compile_each_program_once(wrapped: str, address: str, tmp_path: Path) -> None:
    first, second = ranks(address, tmp_path, wrapped)
    assert first[0] == second[0]
    assert isinstance(first[0], int)
    assert first[0] >= 2
    assert first[2] == pytest.approx(second[2])
    assert first[3] == second[3] == {}
    with kcache.Client(address, namespace=wrapped, cache_dir=tmp_path / "cache", strict=True) as client:
        assert client.stats().compiles == first[0]


@pytest.mark.long
@pytest.mark.parametrize("wrapped", ["fsdp", "dtensor"])
def test_sharded_parameters(wrapped: str, address: str, tmp_path: Path) -> None:
    """FSDP, and layers whose products are split over the ranks: parameters are distributed tensors."""
    first, second = ranks(address, tmp_path, wrapped)
    assert first[2] == pytest.approx(second[2])
    assert (first[0], first[3]) == (second[0], second[3])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::kcache_grpc.KcacheWarning")
def test_a_server_that_is_killed_ten_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_CLIENTS", kernels._Clients())  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path))
    undisturbed, killed, kills = kill_loop.undisturbed_and_killed(tmp_path, 10)
    assert kills == 10
    assert killed.losses == pytest.approx(undisturbed.losses, rel=1e-5)
    # A client gives up a server after 8 s; the rest is the time of its start, and of the compile itself.
    assert max(killed.seconds) < max(undisturbed.seconds) + 30
    assert killed.kernels[-1] > 0
