"""Resolves every development dependency to exact versions and writes ``constraints.txt``.

``make constraints`` runs it with uv, which resolves for every supported Python at once: a line that differs
between interpreters carries a marker. PyTorch itself is not constrained (the Makefile's ``TORCH`` names it).
Its dependencies are, so that an installation of next year gets the versions that were tested.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "constraints.txt"
#: The oldest Python that has all of the extras; uv resolves for it and for all later ones.
OLDEST_PYTHON = "3.11"
EXTRAS = ("server", "dev", "jax", "bench", "docs")
#: What PyTorch requires in addition to its accelerator libraries, and what builds the package.
BESIDE = ("filelock", "fsspec", "hatchling", "networkx", "setuptools", "sympy")
HEADER = """\
# Exact versions of what `make demo`, `make test`, `make check`, `make docs` and `make bench` install.
# Written by `make constraints`; not edited by hand.
"""


def main() -> int:
    uv = shutil.which("uv")
    if uv is None:
        print("uv is missing: run `make constraints`, which installs it", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        beside = Path(directory) / "beside.in"
        beside.write_text("\n".join(BESIDE) + "\n")
        resolved = subprocess.run(
            [
                *(
                    uv,
                    "pip",
                    "compile",
                    "--quiet",
                    "--universal",
                    "--upgrade",
                    "--no-header",
                    "--no-annotate",
                ),
                *("--python-version", OLDEST_PYTHON, "--no-emit-index-url", "--no-emit-find-links"),
                *(argument for extra in EXTRAS for argument in ("--extra", extra)),
                *(str(ROOT / "pyproject.toml"), str(beside)),
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
    OUTPUT.write_text(HEADER + resolved)
    return 0


if __name__ == "__main__":
    sys.exit(main())
