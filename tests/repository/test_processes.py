"""How many processes run tests, on machines and in containers of any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.test_processes import processes

PLENTY = "1000000000 kB"


def machine(root: Path, cpu: str, memory: str, available: str) -> Path:
    cgroup = root / "sys" / "fs" / "cgroup"
    cgroup.mkdir(parents=True)
    (root / "proc").mkdir()
    for name, content in (("cpu.max", cpu), ("memory.max", memory)):
        if content:
            (cgroup / name).write_text(f"{content}\n")
    (root / "proc" / "meminfo").write_text(f"MemTotal: {PLENTY}\nMemAvailable: {available}\nBuffers: 0 kB\n")
    return root


@pytest.mark.parametrize(
    ("processors", "cpu", "memory", "available", "expected"),
    [
        (1, "", "", PLENTY, 3),
        (2, "max 100000", "max", PLENTY, 4),
        (64, "max 100000", "max", PLENTY, 16),
        (64, "150000 100000", "max", PLENTY, 4),
        (8, "max 100000", f"{4 << 30}", PLENTY, 4),
        (8, "max 100000", "max", f"{5 << 20} kB", 5),
        (2, "10000 100000", f"{1 << 20}", PLENTY, 1),
    ],
)
def test_no_more_than_processors_and_memory_serve(tmp_path, processors, cpu, memory, available, expected):
    assert processes(machine(tmp_path, cpu, memory, available), processors) == expected
