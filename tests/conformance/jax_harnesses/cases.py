"""The cases by name: which there are, and which of them are also run with a batch of any size.

JAX ships them with its wheel; they need absl-py. ``jax_enable_x64`` decides how many there are, so it must be
set before this is imported.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from jax._src.internal_test_util.test_harnesses import all_harnesses

#: Those that JAX implements on a CPU.
CASES: dict[str, Any] = {case.fullname: case for case in all_harnesses if case.filter("cpu")}


def batched() -> list[str]:
    """The names of the published programs of open sizes: of each primitive the dtype with most cases."""
    counts: dict[str, Counter[str]] = {}
    for case in CASES.values():
        counts.setdefault(case.group_name, Counter())[str(case.dtype)] += 1
    chosen = {
        group: min(dtypes, key=lambda dtype: (-dtypes[dtype], dtype)) for group, dtypes in counts.items()
    }
    return [name for name, case in CASES.items() if str(case.dtype) == chosen[case.group_name]]
