"""The versions of PyTorch and JAX whose programs are tested, and a warning for any other."""

from __future__ import annotations

import re
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from kcache_grpc.local_files import KcacheWarning

#: Package -> oldest and newest release (major, minor) that ran the package's tests.
TESTED: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "torch": ((2, 13), (2, 15)),
    "jax": ((0, 10), (0, 10)),
}


def warn_if_untested(package: str) -> None:
    """Warn once a process if the installed release of ``package`` is none of the tested ones.

    A program of another release is taken as it is: what the compiler does not know is rejected with the
    operation's name, as for every program.
    """
    try:
        installed = version(package)
    except PackageNotFoundError:  # a build that was not installed as a package
        return
    _warn_once(package, installed)


@cache
def _warn_once(package: str, installed: str) -> None:
    oldest, newest = TESTED[package]
    match = re.match(r"(\d+)\.(\d+)", installed)
    if match is None or oldest <= (int(match[1]), int(match[2])) <= newest:
        return
    releases = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    warnings.warn(
        f"kcache was tested with {package} {releases}, and {installed} is installed: "
        "compare results with the framework's own before you rely on them",
        KcacheWarning,
        stacklevel=4,
    )
