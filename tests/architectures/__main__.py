"""``python -m tests.architectures [NAME...]``: every model, and how far its results are from eager mode."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import kcache_grpc as kcache
from tests.architectures.corpus import MODELS
from tests.architectures.run import outcome
from tests.serving import ServerProcess


def main() -> int:
    counts: Counter[str] = Counter()
    sys.stdout.write("| model | parameters | result | difference | export s | compile s |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        cache.mkdir(mode=0o700)
        server = ServerProcess(Path(folder))
        with server, kcache.Client(server.address, cache_dir=cache) as client:
            for name in sys.argv[1:] or MODELS:
                found = outcome(client, name)
                counts[found.how] += 1
                sys.stdout.write(
                    f"| {name} | {found.parameters} | {found.how} {found.why[:300]} | {found.apart:.1e} | "
                    f"{found.export_s:.1f} | {found.compile_s:.1f} |\n"
                )
                sys.stdout.flush()
    sys.stdout.write(f"\n{dict(counts)}\n")
    return 0 if set(counts) <= {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
