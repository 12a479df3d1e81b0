"""The extension module as its source has it, whatever the installation has."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import tempfile
from pathlib import Path

from kcache_grpc.runtime.cpu import fast_call


@functools.cache
def built() -> fast_call.Extension:
    """The module built without warnings; loaded once a process."""
    import hatch_build

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / hatch_build.module_name()
        hatch_build.compile_extension(path, ["-Wall", "-Wextra", "-Werror"])
        loader = importlib.machinery.ExtensionFileLoader("kcache_grpc.runtime._fastcall", str(path))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return fast_call.described(module)
