"""Timeouts of process groups."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kcache_grpc.errors import ArgumentError
from kcache_grpc.torch import extend_process_group_timeout

pytestmark = pytest.mark.issue(number=20, point=6)

_RANK = """
import sys
import torch
import torch.distributed as dist
from kcache_grpc.torch import extend_process_group_timeout
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
assert extend_process_group_timeout(12.7) == 12
assert extend_process_group_timeout(0.5) == 0
values = torch.tensor([rank + 1])
dist.all_reduce(values)
assert values.item() == 3
dist.destroy_process_group()
print("done")
"""


def test_without_process_groups_nothing_is_extended() -> None:
    assert extend_process_group_timeout(10.0) == 0


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True])
def test_seconds_are_a_finite_number(seconds: float) -> None:
    with pytest.raises(ArgumentError, match="finite number"):
        extend_process_group_timeout(seconds)


def test_a_group_of_two_processes(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _RANK, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=120)[0].strip() for rank in ranks] == ["done", "done"]
