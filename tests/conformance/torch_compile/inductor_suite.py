"""``python -m tests.conformance.torch_compile.inductor_suite FILE``: PyTorch's tests of ``torch.compile``.

FILE is ``test/inductor/test_torchinductor.py`` of a checkout of PyTorch: none of it is part of this
repository. The cases of its class ``CommonTemplate`` run on the CPU with backend ``kcache`` in place of
Inductor, in strict mode and with kernels of a single operator. Cases that examine generated source code, or
Inductor's own configuration and passes, are excluded.

``--part I/N`` takes the I-th of N parts, ``--test`` chooses, ``--seconds`` begins no batch after so many,
``--record FILE`` keeps a line of JSON for each case and leaves out what is kept there. ``--page FILE...``
writes records to docs/results/torch-compile-suite.md. Status 1 when a case fails or ends its process.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import inspect
import itertools
import json
import math
import os
import re
import sys
import time
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.conformance.torch_ops.harness.samples import info
from tests.ops.generated.drive import Case, these

_MODULE = "tests.conformance.torch_compile.inductor_suite"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "torch-compile-suite.md"
BAD = ("fail", "crash")
#: Patterns in the source of a case -> why it is excluded.
_EXCLUDED = {
    r"run_and_get|FileCheck|get_triton_code|get_cpp_code|_code\(": "it examines generated source code",
    r"metrics\.|assertGeneratedKernelCount|KernelCount|counters\[": "it counts Inductor's kernels or passes",
    r"aoti|aot_compile|AOTInductor": "it tests ahead-of-time compilation by Inductor",
    r"_inductor\.(?!config|utils|metrics|test)|lowering|GraphLowering|compile_fx_inner": "it calls Inductor",
    r"@requires_(gpu|cuda|multigpu|triton)|TritonCode": "it is for GPUs",
}
#: Beginnings of cases that fail -> why that is expected.
_DIFFERENCES = {
    "test_addmv": "PyTorch rejects the call when it traces, before the backend",
    "test_cat_extern_kernel": "rounding: 6.4e-4 from the result in f64, eager mode 6.0e-4",
    "test_fft_real_input_real_output": "rounding: 2.2e-5 from the result in f64, eager mode 2.0e-5",
    "test_conv2d_backward_channels_last": "rounding: 3.0e-5 from the result in f64, eager mode 1.5e-5",
    "test_complex_memory_overlap": "this PyTorch has no such function",
    "test_low_memory_max_pool": "this PyTorch has no such function",
    "test_should_pad_bench_for_bmm": "this PyTorch has no such function",
    "test_computed_buffer_inlining": "it examines generated source code (its numbers are right)",
    "test_index_propagation": "it examines generated source code (its numbers are right)",
    "test_inner_fn_str_and_stride": "it calls Inductor's scheduler",
    "test_profiler_mark_wrapper_call": "it looks for Inductor's mark in a profile",
}
_HEAD = """# `torch.compile`: PyTorch's tests of its compiler

The CPU cases of PyTorch's suite `test_torchinductor` with `torch.compile(backend="kcache",
options={"strict": True, "least_operators": 0})` in place of Inductor. *Skipped*: by the case itself.
*Excluded*: cases that examine what Inductor generates or how it is configured. All cases ran at commit
`81333998` on 2026-11-30 with PyTorch 2.13.0, in one process on two cores (shared with other work) of an AMD
Zen 4 server with AVX-512.

The file is `test_torchinductor` in `test/inductor` of `YTLiu-bury/Ascend-NPU-Inductor` at commit `499f4621`:
an earlier version of PyTorch's file, which its authors adapted to NPUs. In the copy that ran, names that
PyTorch 2.13 does not have are None (`cpp_prefix_path`, `complex_memory_overlap`) or their successor
(`requires_cuda_and_triton` for `requires_cuda`), and three custom operators are registered for CUDA in place
of NPUs, as in PyTorch's file. Commands:

```
python -m tests.conformance.torch_compile.inductor_suite FILE --record suite.jsonl
python -m tests.conformance.torch_compile.inductor_suite --page suite.jsonl
```

"""


def _load(file: str) -> Any:
    info("add")  # provides a package of PyTorch's tests where it is not installed
    sys.path.insert(0, str(Path(file).resolve().parent))
    spec = importlib.util.spec_from_file_location("test_torchinductor", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _cases(module: Any) -> type:
    """The test class of the CPU."""

    class CpuTests(module.TestCase):
        common = module.check_model
        device = "cpu"

    module.copy_tests(module.CommonTemplate, CpuTests, "cpu")
    return CpuTests


def _names(tests: type) -> list[str]:
    return sorted(name for name in dir(tests) if name.startswith("test"))


def _excluded(template: type, name: str) -> str | None:
    """Why a case is excluded, or ``None``."""
    method = getattr(template, name.removesuffix("_cpu"), None)
    try:
        source = inspect.getsource(method)  # pyright: ignore[reportArgumentType]
    except (TypeError, OSError):
        return None
    for pattern, reason in _EXCLUDED.items():
        if re.search(pattern, source):
            return reason
    return None


def _replace_inductor(module: Any) -> None:
    """Makes backend ``kcache`` the default of ``torch.compile`` and what the cases call."""
    import torch

    from kcache_grpc.integrations.torch.dynamo.backend import kcache

    options = {"strict": True, "least_operators": 0, "warm_start": False}
    backend = functools.partial(kcache, options=options)
    compile = torch.compile

    def compile_with_kcache(*arguments: Any, **keywords: Any) -> Any:
        if keywords.get("backend", "inductor") == "inductor":
            keywords = {**keywords, "backend": backend}
            keywords.pop("options", None)
            keywords.pop("mode", None)
        return compile(*arguments, **keywords)

    optimize = torch._dynamo.optimize

    def optimize_with_kcache(*arguments: Any, **keywords: Any) -> Any:
        if not arguments and keywords.get("backend", "inductor") == "inductor":
            keywords["backend"] = backend
        elif arguments and arguments[0] == "inductor":
            arguments = (backend, *arguments[1:])
        return optimize(*arguments, **keywords)

    torch.compile = compile_with_kcache
    torch._dynamo.optimize = optimize_with_kcache
    module.compile_fx = lambda graph, inputs, *_, **__: backend(graph, inputs)


def judge(file: str) -> None:
    """Run the cases that lines on stdin name, each a JSON list, until it ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    module = _load(file)
    tests = _cases(module)
    _replace_inductor(module)
    for line in sys.stdin:
        _, _, asked = json.loads(line)
        out.write(json.dumps([_run(module, tests, case[0]) for case in asked]) + "\n")
        out.flush()


def _run(module: Any, tests: type, name: str) -> list[str]:
    reason = _excluded(module.CommonTemplate, name)
    if reason is not None:
        return ["excluded", reason]
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests(name).run(result)
    if result.skipped:
        return ["skipped", result.skipped[0][1]]
    problems = [*result.errors, *result.failures]
    if problems:
        lines = [line for line in problems[0][1].strip().splitlines() if line.strip()]
        named = [
            line for line in lines if re.match(r"^[\w.]*(Error|Exception|Failed|Unsupported\w*)\b", line)
        ]
        return ["fail", " ".join([*named[:2], *lines[-6:]])[:700]]
    if result.unexpectedSuccesses:
        return ["pass", "unexpected success"]
    return ["pass", ""]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--test", nargs="*", default=())
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--page", type=Path, nargs="*")
    parser.add_argument("--judge", action="store_true")
    arguments = parser.parse_args()
    if arguments.judge:
        judge(arguments.file)
        return 0
    if arguments.page is not None:
        PAGE.write_text(page(_recorded(arguments.page)))
        return 0
    part, parts = map(int, arguments.part.split("/"))
    names = list(arguments.test) or _names(_cases(_load(arguments.file)))[part - 1 :: parts]
    judged = _judged(arguments, names)
    counts = Counter(case.outcome for case in judged)
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    sys.stdout.write(f"{len(judged)} of {len(names)} cases: {words}\n")
    return int(any(case.outcome in BAD for case in judged))


def _recorded(files: Sequence[Path]) -> list[Case]:
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return [Case(**json.loads(line)) for line in lines]


def _judged(arguments: argparse.Namespace, names: Sequence[str]) -> list[Case]:
    kept = _recorded([arguments.record]) if arguments.record else []
    judged = [case for case in kept if case.op in set(names)]
    known = {case.op for case in judged}
    end = time.monotonic() + arguments.seconds
    asked = [(name, "", 0, 0) for name in names if name not in known]
    drawn = these(asked, module=f"{_MODULE} {arguments.file} --judge")
    for case in itertools.takewhile(lambda _: time.monotonic() < end, drawn):
        judged.append(case)
        if arguments.record:
            with arguments.record.open("a") as file:
                file.write(json.dumps(asdict(case)) + "\n")
        if case.outcome in BAD:
            sys.stdout.write(f"{case.outcome}: {case.op}: {case.reason}\n")
            sys.stdout.flush()
    return judged


def page(judged: Sequence[Case]) -> str:
    """The text of the page."""
    counts = Counter(case.outcome for case in judged)
    ran = counts["pass"] + counts["fail"] + counts["crash"]
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case in judged:
        if case.outcome != "pass":
            expected = next((why for name, why in _DIFFERENCES.items() if case.op.startswith(name)), "")
            reason = expected if case.outcome == "fail" and expected else case.reason
            reasons[case.outcome, reason.replace("|", "\\|")].append(f"`{case.op}`")
    lines = [
        f"Of {len(judged)} cases {counts['excluded']} are excluded and {counts['skipped']} skipped; of the "
        f"other {ran}, {counts['pass']} pass ({counts['pass'] / max(ran, 1):.1%}), {counts['fail']} fail, "
        f"{counts['crash']} end their process.",
        "",
        "| outcome | reason | cases |",
        "| --- | --- | --- |",
        *(
            f"| {outcome} | {reason} | {', '.join(names)} |"
            for (outcome, reason), names in sorted(reasons.items())
        ),
    ]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
