"""How many workers start on machines and in containers of any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcache_grpc.worker.machine import compilers

pytestmark = pytest.mark.issue(number=19, point=27)

GIB = 1 << 30


def container(root: Path, files: dict[str, str], group: str = "0::/", memory: int = 256 * GIB) -> Path:
    """A root with the ``files`` of control groups, by path below their mount, and ``memory`` bytes."""
    for name, content in files.items():
        path = root / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(f"{group}\n")
    (root / "proc" / "meminfo").write_text(f"MemTotal: {memory >> 10} kB\nMemFree: 0 kB\n")
    return root


@pytest.mark.parametrize(
    ("files", "group", "expected"),
    [
        pytest.param({}, "0::/", 64, id="no limit"),
        pytest.param({"cpu.max": "max 100000", "memory.max": "max"}, "0::/", 64, id="unlimited"),
        pytest.param({"cpu.max": "200000 100000", "memory.max": str(8 * GIB)}, "0::/", 2, id="2 CPUs"),
        pytest.param({"cpu.max": "50000 100000"}, "0::/", 1, id="half a CPU"),
        pytest.param({"memory.max": str(8 * GIB)}, "0::/", 15, id="8 GiB"),
        pytest.param({"memory.max": str(GIB // 4)}, "0::/", 1, id="256 MiB"),
        pytest.param({"a/cpu.max": "300000 100000"}, "0::/a/b", 3, id="limit of the group above"),
        pytest.param({"cpu.max": "300000 100000"}, "0::/of/the/host", 3, id="a path of the host"),
        pytest.param(
            {"cpu,cpuacct/cpu.cfs_quota_us": "200000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            "3:cpu,cpuacct:/",
            2,
            id="version 1",
        ),
        pytest.param(
            {"cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": str(4 * GIB)},
            "3:cpu:/\n2:memory:/\n1:name=systemd:/x",
            7,
            id="version 1, memory",
        ),
    ],
)
def test_workers_fit_the_control_group(
    tmp_path: Path, files: dict[str, str], group: str, expected: int
) -> None:
    assert compilers(container(tmp_path, files, group), processors=64) == expected


def test_workers_fit_a_machine_with_little_memory(tmp_path: Path) -> None:
    assert compilers(container(tmp_path, {}, memory=4 * GIB), processors=64) == 7


def test_this_machine_has_workers() -> None:
    assert compilers() >= 1
