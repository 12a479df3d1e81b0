"""Builds the shim, and turns its switches."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")


def build(folder: Path) -> Path:
    """The shared object to preload."""
    library = folder / "shim.so"
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(_SOURCE),
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return library


class Switches:
    """What one process under the shim, and its children, see of disk and wall clock."""

    def __init__(self, shim: Path, control: Path) -> None:
        control.write_bytes(bytes(16))
        control.chmod(0o644)
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 16)
        self.environment = {"LD_PRELOAD": str(shim), "CHAOS_CONTROL": str(control)}

    def disk_full(self, full: bool) -> None:
        """Writes to files fail with ENOSPC, or no longer."""
        self._map[:8] = struct.pack("q", int(full))

    def shift_clock(self, seconds: float) -> None:
        """The wall clock is off by ``seconds`` from now on; steady clocks never are."""
        self._map[8:] = struct.pack("q", int(seconds * 1e9))

    def heal(self) -> None:
        """Space on the disk, the right time."""
        self.disk_full(False)
        self.shift_clock(0)
