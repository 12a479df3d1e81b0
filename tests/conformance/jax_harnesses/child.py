"""Child process that judges cases: native code that crashes ends it and nothing else.

``python -m tests.conformance.jax_harnesses.child MODE`` reads names from stdin, one a line, and writes a
line of JSON for
each: what, how and why.
"""

from __future__ import annotations

import json
import sys
import warnings

import jax


def main() -> None:
    """Judge until stdin ends."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    warnings.simplefilter("ignore")
    from tests.conformance.jax_harnesses.run import outcome

    for line in sys.stdin:
        try:
            how, why = outcome(line.rstrip("\n"), sys.argv[1])
        except Exception as error:
            how, why = "error", f"{type(error).__name__}: {str(error)[:300]}"
        sys.stdout.write(json.dumps([(sys.argv[1], how, why)]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
