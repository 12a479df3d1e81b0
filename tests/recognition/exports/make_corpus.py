"""Makes the corpus beside this file. Run by hand, with JAX and PyTorch:
``python -m tests.recognition.exports.make_corpus [GRAPH ...]``.
"""

from __future__ import annotations

import importlib
import sys
import warnings

from tests.recognition.exports.corpus import CORPUS, Entry, write
from tests.recognition.exports.graphs import GRAPHS


def main() -> None:
    warnings.simplefilter("ignore")
    wanted = sys.argv[1:]
    for graph in GRAPHS:
        if wanted and graph.name not in wanted:
            continue
        module = importlib.import_module(f"tests.recognition.exported_{graph.framework}")
        texts = [getattr(module, graph.name)(sizes) for sizes in graph.sizes]
        path = CORPUS / f"{graph.name}.mlir.gz"
        write(path, Entry(graph.name, graph.framework, graph.free, tuple(graph.sizes), tuple(texts)))
        print(f"{graph.name}: {len(texts)} programs, {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
