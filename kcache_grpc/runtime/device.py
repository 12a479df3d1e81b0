"""The name of this machine under which timings are kept."""

from __future__ import annotations

import os
import platform
import re
from functools import lru_cache
from pathlib import Path

from kcache_grpc.runtime.cpu.threads import thread_count

_MODEL = re.compile(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", re.MULTILINE)


@lru_cache(maxsize=1)
def device_name() -> str:
    """Model of the processor and threads of a kernel, such as ``AMD EPYC 9B14/2``."""
    try:
        match = _MODEL.search(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        match = None
    model = match[1] if match else platform.machine() or "unknown"
    printable = "".join(letter for letter in " ".join(model.split()) if letter.isprintable())
    return f"{printable[:180] or 'unknown'}/{thread_count(os.environ)}"
