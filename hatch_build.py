"""Builds the extension module of the client, ``kcache_grpc.runtime._fastcall``: a hook of hatchling.

A wheel contains it, and an editable installation has it in the source tree. It is optional: without a C
compiler or Python's headers the package is built without it (docs/internals/packaging.md).
``KCACHE_EXTENSION=require``
makes that an error, ``KCACHE_EXTENSION=off`` builds none. ``python hatch_build.py`` builds it in the source
tree.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "kcache_grpc" / "runtime" / "_fastcall.c"
FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden")
#: The buffer protocol is part of the limited API from here on: one build serves all later versions.
STABLE_SINCE = (3, 11)


class NotBuilt(Exception):
    """Why there is no extension module."""


def stable() -> bool:
    """Whether the module is built against the limited API of ``STABLE_SINCE``."""
    return sys.version_info >= STABLE_SINCE


def module_name() -> str:
    """The file name by which this interpreter imports the module."""
    return f"{SOURCE.stem}{'.abi3.so' if stable() else sysconfig.get_config_var('EXT_SUFFIX')}"


def wheel_tag() -> str:
    """The tag of a wheel with the module."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    since = "cp{}{}".format(*STABLE_SINCE)
    return f"{since}-abi3-{system}" if stable() else f"{tag}-{tag}-{system}"


def compile_extension(target: Path, flags: Sequence[str] = ()) -> None:
    """Compile the module to the file ``target``. Raises ``NotBuilt``."""
    if not sys.platform.startswith("linux") or platform.python_implementation() != "CPython":
        raise NotBuilt("it is for CPython on Linux")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("it is for interpreters with a global lock")
    paths = sysconfig.get_paths()
    command = [*_compiler(), *FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), *flags]
    command += [f"-I{directory}" for directory in dict.fromkeys((paths["include"], paths["platinclude"]))]
    if stable():
        command.append("-DPy_LIMITED_API=0x{:02X}{:02X}0000".format(*STABLE_SINCE))
    try:
        done = subprocess.run(
            [*command, str(SOURCE), "-o", str(target)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuilt(str(error)) from None
    if done.returncode:
        raise NotBuilt(f"{shlex.join(command)} failed: {done.stderr.strip()}")


def _compiler() -> list[str]:
    """The command of the C compiler: CC, else that of the interpreter, else any."""
    if "CC" in os.environ:
        return shlex.split(os.environ["CC"])
    for command in (sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    raise NotBuilt("there is no C compiler")


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the module to a wheel, or builds it in place for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("KCACHE_EXTENSION", "")
        if self.target_name != "wheel" or wanted == "off":
            return
        try:
            if version == "editable":
                build_in_place()
                return
            self._directory = tempfile.TemporaryDirectory()
            module = Path(self._directory.name) / module_name()
            compile_extension(module)
        except NotBuilt as reason:
            if wanted == "require":
                raise
            self.app.display_warning(f"{SOURCE.stem} is left out, calls go through cffi: {reason}")
            return
        build_data["force_include"][str(module)] = f"kcache_grpc/runtime/{module.name}"
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_directory"):
            self._directory.cleanup()


def build_in_place() -> Path:
    """Build the module next to its source. Raises ``NotBuilt``."""
    module = SOURCE.with_name(module_name())
    with tempfile.TemporaryDirectory(dir=SOURCE.parent, prefix=".build-") as directory:
        fresh = Path(directory) / module.name
        compile_extension(fresh)
        fresh.replace(module)  # a process may have loaded the old file
    return module


if __name__ == "__main__":
    sys.stdout.write(f"{build_in_place()}\n")
