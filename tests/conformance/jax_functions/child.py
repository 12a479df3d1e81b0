"""Child process that judges functions: native code that crashes ends it and nothing else.

``python -m tests.conformance.jax_functions.child MODE`` reads names from stdin, one a line, and writes a
line of JSON for
each: what its outcomes are.
"""

from __future__ import annotations

import json
import sys
import warnings

import jax

from tests.conformance.jax_functions.run import outcomes


def main() -> None:
    """Judge until stdin ends."""
    mode = sys.argv[1]
    jax.config.update("jax_enable_x64", mode == "x64")
    jax.config.update("jax_platforms", "cpu")
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_judged(line.rstrip("\n"), mode)) + "\n")
        sys.stdout.flush()


def _judged(name: str, mode: str) -> list[tuple[str, str, str]]:
    """What, how and why; an exception of JAX or of ours is an ``error``."""
    judgements: list[tuple[str, str, str]] = []
    try:
        judgements.extend((outcome.what, outcome.how, outcome.why) for outcome in outcomes([name], mode))
    except Exception as error:
        what = "gradient" if judgements else "forward"
        judgements.append((what, "error", f"{type(error).__name__}: {str(error)[:300]}"))
    return judgements


if __name__ == "__main__":
    main()
