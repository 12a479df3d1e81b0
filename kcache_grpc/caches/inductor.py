"""The on-disk cache in the directory of PyTorch's Inductor."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from functools import cached_property
from pathlib import Path

from kcache_grpc.caches.base import Key, Value
from kcache_grpc.caches.disk import OnDiskCache
from kcache_grpc.caches.files import Files

_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|]')


class _InductorFiles(Files):
    """File operations below a directory with a known name in the directory of temporary files.

    Another user can create that directory first: it must belong to this user, as must those inside it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def check_directory(self, path: Path) -> None:
        """Checks ``path`` and those of its parents that are in Inductor's directory."""
        directories = [path]
        if path.is_relative_to(self._root):
            while directories[-1] != self._root:
                directories.append(directories[-1].parent)
        for directory in reversed(directories):
            super().check_directory(directory)


class InductorOnDiskCache(OnDiskCache[Key, Value]):
    """An ``OnDiskCache`` in Inductor's directory: ``inductor_on_disk_cache`` below its ``cache``.

    Entries of ``torch._inductor.cache`` in the same directory have other names; with ``allow_pickle`` they
    are read, and count as existing keys. PyTorch need not be installed.

    Args:
        allow_pickle: as of ``OnDiskCache``.
        files: the file operations; by default those that also check Inductor's directories.
    """

    def __init__(self, *, allow_pickle: bool = False, files: Files | None = None) -> None:
        files = files or _InductorFiles(default_cache_dir())
        super().__init__("inductor_on_disk_cache", allow_pickle=allow_pickle, files=files)

    @cached_property
    def base_dir(self) -> Path:
        """Inductor's directory for on-disk caches. It may be assigned."""
        return default_cache_dir() / "cache" / self.name


def default_cache_dir() -> Path:
    """Inductor's default directory: ``torchinductor_<user>`` in the directory of temporary files.

    The same as ``torch._inductor.runtime.cache_dir_utils.default_cache_dir``. ``TORCHINDUCTOR_CACHE_DIR``
    changes neither this directory nor that of the original.
    """
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        user = f"uid_{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"torchinductor_{_NOT_IN_NAMES.sub('_', user)}"
