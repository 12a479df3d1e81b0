"""The test set of a pack: the cases of ``tests/gpu``, with their own arguments, oracles and tolerances."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from benchmarks.gpu.kit.packing.few_rows import few_rows
from benchmarks.gpu.kit.packing.programs import (
    Argument,
    Array,
    Call,
    Expected,
    Program,
    Source,
    argument,
    as_near,
    exact,
    near,
)
from benchmarks.gpu.kit.runtime.values import seeded, stored, wide
from examples.inputs import NAMES as EXAMPLES
from examples.inputs import load
from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.types import ArgSpec, Canonical, CompiledKernel, CompileOptions, TensorType
from kcache_grpc.model.sizes.expression import evaluate
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel
from tests.compiler.dynamic_corpus import COMPILED
from tests.compiler.dynamic_corpus import case as corpus_case
from tests.compiler.lower.attention import test_attention as forms
from tests.gpu import chosen, test_choices
from tests.gpu.attention import test_attention
from tests.gpu.attention.test_attention import random_arguments
from tests.gpu.harness import overwrites
from tests.gpu.harness.generated import BATCH
from tests.gpu.harness.programs import TEMPLATES, TOLERANCE, Template, narrow_attention
from tests.gpu.loops import test_loops, test_split_reductions
from tests.ops.generated.judge import together
from tests.ops.generated.operations import catalog
from tests.ops.generated.small import derive
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram, all_programs
from tests.ops.harness.rejected import REJECTED
from tests.recognition.eager.close import OF_LARGEST, RELATIVE
from tests.recognition.exports.corpus import read

#: Of the programs on narrow types one in so many; random programs with overwriting; random choices.
_NARROW_STEP, _OVERWRITING, _CHOICES = 8, 48, 60
#: Sizes of each graph of the corpus: of the kernel of all sizes, and for each a kernel of their own.
_SIZES = 3
#: A product with few tiles and many steps along K, which is split.
_LONG = (40, 72, 4104)
_ATTENTION_BOUND = {"f16": 2e-3, "bf16": 2e-2, "f32": 3e-6, "f64": 1e-12}
_FLOATS = {"f2": "f16", "f4": "f32", "f8": "f64"}


def test_set() -> list[Source]:
    """All cases, in an order that does not change."""
    groups = (
        _templates,
        _attention,
        _reductions,
        few_rows,
        _corpus,
        _demo,
        _choices,
        _loops,
        _ops,
        _overwriting,
        _random,
        _narrow,
    )
    return [source for group in groups for source in group()]


def _text(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


# Templates.


def _templates() -> Iterator[Source]:
    for template in TEMPLATES:
        label = template.name.replace(" ", "_")
        for dtype in template.dtypes:
            for sizes in template.sizes:
                name = f"template/{label}/{dtype}/{_text(sizes)}"
                yield Source(name, "templates", dtype, partial(_template, template, dtype, sizes))
            if template.name == "matmul":
                build = partial(_template, template, dtype, _LONG)
                yield Source(f"template/{label}/{dtype}/{_text(_LONG)}", "templates", dtype, build)
            build = partial(_dynamic_template, template, dtype)
            yield Source(f"template/{label}/{dtype}/dynamic", "templates", dtype, build)


def _template(template: Template, dtype: str, sizes: tuple[int, ...], schedule: str = "") -> Program:
    text, count = template.text(dtype, *sizes), len(template.shapes(*sizes))
    options = CompileOptions(schedule=schedule)
    return Program(
        lambda target: lower_module(text, count, target, options, lambda _: None),
        (_template_call(template, dtype, sizes),),
        options=options,
    )


def _dynamic_template(template: Template, dtype: str) -> Program:
    canonical = canonicalize(template.text(dtype, *template.sizes[3]).encode(), "stablehlo", "default")
    calls = tuple(_template_call(template, dtype, sizes) for sizes in template.sizes)
    return Program(
        partial(_spec_kernel, canonical, ArgSpec(canonical.symbolic_args), CompileOptions()), calls
    )


def _template_call(template: Template, dtype: str, sizes: tuple[int, ...]) -> Call:
    arguments, arrays = _seeded(dtype, template.shapes(*sizes))
    scale = float(np.max(np.abs(template.expected(*map(np.abs, arrays))), initial=1.0))
    expected = near(dtype, template.expected(*arrays), 0.0, TOLERANCE[dtype] * scale)
    return Call(arguments, (expected,))


def _seeded(dtype: str, shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[Argument, ...], list[Array]]:
    """Arguments that take no room in a pack, and their values in f64."""
    arguments = tuple(Argument(dtype, shape, None, seed) for seed, shape in enumerate(shapes, 1))
    return arguments, [wide(dtype, seeded(dtype, tensor.shape, tensor.seed)) for tensor in arguments]


def _spec_kernel(canonical: Canonical, args: ArgSpec, options: CompileOptions, target: str) -> CompiledKernel:
    return compile_spec(canonical.spec_text, args, target, options, lambda _: None)


# Attention.


def _attention() -> Iterator[Source]:
    sizes = [
        (1, 1, 16, 8, 8),
        (2, 1, 64, 64, 64),
        (1, 2, 65, 130, 128),
        (1, 1, 40, 70, 200),
        (1, 3, 30, 17, 9),
    ]
    for dtype in ("f16", "bf16", "f32"):
        for causal in (False, True):
            for each in sizes:
                name = f"attention/{dtype}/{_text(each)}{'/causal' if causal else ''}"
                yield Source(name, "attention", dtype, partial(_narrow_attention, dtype, causal, each))
    for function in (*forms.FORMS, forms.grouped):
        for kind, dynamic, size in (
            ("f4", False, (70, 131, 24)),
            ("f4", True, (33, 40, 17)),
            ("f8", True, (35, 67, 24)),
        ):
            if function is forms.in_the_middle and kind == "f8":
                continue  # no attention of one launch, see tests/gpu/attention/test_attention.py
            name = f"attention/{function.__name__}/{_FLOATS[kind]}{'/dynamic' if dynamic else ''}"
            build = partial(_attention_form, function, kind, dynamic, size)
            yield Source(name, "attention", _FLOATS[kind], build)


def _narrow_attention(dtype: str, causal: bool, sizes: tuple[int, int, int, int, int]) -> Program:
    batch, heads, queries, keys, depth = sizes
    arguments, (q, k, v) = _seeded(dtype, [(batch, heads, count, depth) for count in (queries, keys, keys)])
    scores = q @ k.swapaxes(-1, -2) * depth**-0.5
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    atol = _ATTENTION_BOUND[dtype] * max(1.0, float(np.abs(wanted).max()))
    text = narrow_attention(*sizes, dtype, causal)
    return Program(
        lambda target: lower_module(text, 3, target, CompileOptions(), lambda _: None),
        (Call(arguments, (near(dtype, wanted, 0.0, atol),)),),
    )


def _attention_form(
    function: forms.Function, kind: str, dynamic: bool, sizes: tuple[int, int, int]
) -> Program:
    arrays = random_arguments(function, sizes, kind)
    wanted = forms._expected(function, arrays)
    dtype = _FLOATS[kind]
    atol = _ATTENTION_BOUND[dtype] * float(np.nanmax(np.abs(wanted), initial=1))
    names = [_FLOATS.get(array.dtype.str[1:], "i1") for array in arrays]
    return Program(
        lambda target: test_attention._kernel(function, arrays, target, dynamic),
        (Call(tuple(map(argument, names, arrays)), (near(dtype, wanted, 0.0, atol),)),),
    )


# Reductions in parts.


def _reductions() -> Iterator[Source]:
    for shape, dims, combiner, element in test_split_reductions.CASES:
        name = f"reductions/{combiner}/{element}/{_text(shape)}"
        yield Source(name, "reductions", element, partial(_reduction, shape, dims, combiner, element))


def _reduction(shape: tuple[int, ...], dims: tuple[int, ...], combiner: str, dtype: str) -> Program:
    text, array = (
        test_split_reductions.reduction(shape, dims, combiner, dtype),
        test_split_reductions.values(shape, combiner, dtype),
    )
    wanted, atol = test_split_reductions.oracle(array, dims, combiner, dtype)
    expected = (
        near(dtype, wanted, 0.0, atol)
        if dtype in TOLERANCE
        else exact(dtype, wanted.shape, wanted.astype(array.dtype).tobytes())
    )
    return Program(
        lambda target: lower_module(text, 1, target, CompileOptions(), lambda _: None),
        (Call((argument(dtype, array),), (expected,)),),
    )


# Graphs.


def _corpus() -> Iterator[Source]:
    for name in COMPILED:
        for numerics in ("default", "strict", "fast"):
            for number in range(-1, _SIZES if numerics == "default" else 1):
                label = f"corpus/{name}/{numerics}/{'dynamic' if number < 0 else number}"
                yield Source(label, "corpus", "f32", partial(_graph, name, numerics, number), shares=name)


def _graph(name: str, numerics: str, number: int) -> Program:
    """At all sizes (-1), or as a kernel of the sizes of a number.

    Results of every numerics are near those of one kernel of the CPU, of all sizes.
    """
    case = corpus_case(name, "default")
    canonical = case.canonical
    if numerics != "default":
        canonical = canonicalize(read(name).texts[1].encode(), "stablehlo", numerics)
    drawn = list(islice(case.sizes(0), _SIZES))
    args = ArgSpec(canonical.symbolic_args if number < 0 else case.types(drawn[number]))
    chosen_sizes = enumerate(drawn) if number < 0 else [(number, drawn[number])]
    calls = list[Call]()
    for seed, sizes in chosen_sizes:
        arrays = case.arguments(sizes, seed)
        kinds = [kind.dtype for kind in case.kernel.interface.inputs]
        outputs = zip(case.kernel.interface.outputs, case.kernel(*arrays, *case.constants), strict=True)
        expected = tuple(as_near(kind.dtype, array, RELATIVE, OF_LARGEST) for kind, array in outputs)
        calls.append(Call(tuple(map(argument, kinds, arrays)), expected))
    options = CompileOptions(numerics=numerics)
    constants = tuple(constant.content for constant in canonical.constants)
    return Program(partial(_spec_kernel, canonical, args, options), tuple(calls), constants, options)


def _demo() -> Iterator[Source]:
    for name in EXAMPLES:
        yield Source(f"demo/{name}", "demo", "f32", partial(_example, name))


def _example(name: str) -> Program:
    example = load(name)
    canonical = canonicalize(example.program.encode(), "stablehlo", "default")
    kinds = [kind.dtype for kind in canonical.arg_spec.args]
    expected = tuple(
        near(kind.dtype, array, example.rtol, example.atol)
        if kind.dtype.startswith("f")
        else exact(kind.dtype, array.shape, array.tobytes())
        for kind, array in zip(canonical.results, example.expected, strict=True)
    )
    return Program(
        partial(_spec_kernel, canonical, canonical.arg_spec, CompileOptions()),
        (Call(tuple(map(argument, kinds, example.inputs)), expected),),
        tuple(constant.content for constant in canonical.constants),
    )


# Schedule choices.


def _choices() -> Iterator[Source]:
    for name, dtype, sizes, schedule in test_choices.SAMPLE:
        label = f"choices/{name.replace(' ', '_')}/{dtype}/{_text(sizes)}/{schedule}"
        build = partial(_template, test_choices.BY_NAME[name], dtype, sizes, schedule)
        yield Source(label, "choices", dtype, build)
    for seed in range(1, _CHOICES + 1):
        case = chosen.case(seed)
        yield Source(f"choices/random/{seed}", "choices", case.dtype, partial(_random_choices, case))


def _random_choices(case: chosen.Case) -> Program:
    (template,) = (template for template in TEMPLATES if template.name == case.name)
    text, arrays = template.text(case.dtype, *case.sizes), chosen._arguments(template, case)
    options = CompileOptions(opt_level=1)
    cpu = Kernel(lower_module(text, len(arrays), host_target().isa, options, lambda _: None))
    (wanted,) = cpu(*arrays)
    with np.errstate(all="ignore"):
        sizes = [np.nan_to_num(np.abs(array.astype("f8")), nan=0, posinf=0) for array in arrays]
        largest = float(np.max(np.abs(template.expected(*sizes)), initial=1.0)) if wanted.size else 1.0
    expected = near(case.dtype, wanted.astype("f8"), 0.0, 2 * TOLERANCE[case.dtype] * largest)
    return Program(
        lambda target: chosen._compiled(text, len(arrays), replace(case, target=target)),
        (Call(tuple(argument(case.dtype, array) for array in arrays), (expected,)),),
        options=CompileOptions(schedule=case.schedule),
    )


# Loops.


def _loops() -> Iterator[Source]:
    for name in test_loops.CASES:
        for dynamic in (False, True):
            label = f"loops/{name.replace(' ', '_')}{'/dynamic' if dynamic else ''}"
            yield Source(label, "loops", "f32", partial(_loop, name, dynamic))


def _loop(name: str, dynamic: bool) -> Program:
    kernel, constants = test_loops._compiled(name, host_target().isa)
    cpu, calls = Kernel(kernel), list[Call]()
    kinds = [kind.dtype for kind in kernel.interface.inputs]
    for arguments in test_loops.CASES[name][1]:
        arrays = [np.asarray(array) for array in arguments]
        outputs = zip(kernel.interface.outputs, cpu(*arrays, *constants), strict=True)
        expected = tuple(exact(kind.dtype, array.shape, array.tobytes()) for kind, array in outputs)
        calls.append(Call(tuple(map(argument, kinds, arrays)), expected))
    return Program(
        lambda target: test_loops._compiled(name, target, dynamic)[0],
        tuple(calls),
        tuple(constant.tobytes() for constant in constants),
        CompileOptions("strict"),
    )


# Programs whose bits are those of this CPU.


def _ops() -> Iterator[Source]:
    for program in all_programs():
        if program.id not in REJECTED:
            yield Source(f"ops/{program.id}", "ops", program.dtype, partial(_strict, program, 3))


def _overwriting() -> Iterator[Source]:
    for number in range(_OVERWRITING):
        dtype, dynamic = overwrites.DTYPES[number % len(overwrites.DTYPES)], number % 3 == 2
        label = f"overwriting/{number}{'/dynamic' if dynamic else ''}"
        build = partial(_overwriting_program, dtype, number, dynamic)
        yield Source(label, "overwriting", dtype, build)


def _overwriting_program(dtype: str, number: int, dynamic: bool) -> Program:
    return _strict(overwrites.program(dtype, 3, number), 1, dynamic)


def _random() -> Iterator[Source]:
    pairs = sorted(catalog.pairs(), key=lambda pair: pair[::-1])
    for first in range(0, len(pairs), BATCH):
        part = pairs[first : first + BATCH]
        yield Source(f"random/{first // BATCH}", "random", part[0][1], partial(_batch, part))


def _batch(part: Sequence[tuple[str, str]]) -> Program:
    return _strict(together([catalog.program(op, dtype, 1, 0) for op, dtype in part]), 1)


def _narrow() -> Iterator[Source]:
    for op, dtype in derive.pairs()[::_NARROW_STEP]:
        yield Source(f"narrow/{op}/{dtype}", "narrow", dtype, partial(_narrow_program, op, dtype))


def _narrow_program(op: str, dtype: str) -> Program:
    return _strict(derive.program(op, dtype, 3, 0), 1)


def _strict(program: OpProgram, opt_level: int, dynamic: bool = False) -> Program:
    """Under ``strict``, a kernel of the program's sizes or of all; results are those of this CPU's kernel."""
    canonical = canonicalize(program.text.encode(), "stablehlo", "strict")
    args = ArgSpec(canonical.symbolic_args) if dynamic else canonical.arg_spec
    options = CompileOptions("strict", opt_level)
    compiled = partial(_spec_kernel, canonical, args, options)
    quickly = CompileOptions("strict", opt_level=0)  # the bits are those of any level
    cpu = _spec_kernel(canonical, args, quickly, host_target().isa)
    contents = tuple(constant.content for constant in canonical.constants)
    shapes = [_static(kind) for kind in canonical.arg_spec.args]
    sizes = {symbol.name: shapes[symbol.arg][symbol.axis] for symbol in cpu.interface.symbols}
    results = run(cpu, program.inputs, [*contents], tuple(sizes.values()))
    expected = tuple(
        _exact_at(kind, sizes, content) for kind, content in zip(cpu.interface.outputs, results, strict=True)
    )
    arguments = tuple(
        argument(kind.dtype, np.frombuffer(content, stored(kind.dtype)).reshape(shape))
        for kind, shape, content in zip(canonical.arg_spec.args, shapes, program.inputs, strict=True)
    )
    return Program(compiled, (Call(arguments, expected),), contents, options)


def _static(kind: TensorType) -> tuple[int, ...]:
    return tuple(int(dim) for dim in kind.dims)


def _exact_at(kind: TensorType, sizes: dict[str, int], content: bytes) -> Expected:
    return exact(kind.dtype, [evaluate(str(dim), sizes) for dim in kind.dims], content)
