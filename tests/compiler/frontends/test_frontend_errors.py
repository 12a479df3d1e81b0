"""Programs that are rejected, each with an error that says what is wrong and where."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest
from torch_mlir._mlir_libs import _stablehlo  # pyright: ignore

from kcache_compiler import Limits, canonicalize
from kcache_compiler.errors import CompilerError, InvalidProgram, LimitExceeded, UnsupportedOp
from kcache_compiler.frontends.prescan import bare_text, bracket_depth, operation_count
from tests.compiler.variants import text_of

DEFAULT = Limits()

HEAD = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
ADD = "  %r = stablehlo.add %x, %x : tensor<4xf32>\n  return %r : tensor<4xf32>\n}\n"
LINALG = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def reject(
    kind: type[CompilerError], program: str | bytes, format: str = "stablehlo", limits: Limits = DEFAULT
) -> str:
    with pytest.raises(kind) as caught:
        canonicalize(program.encode() if isinstance(program, str) else program, format, limits=limits)
    return str(caught.value)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        (b"\xff\xfe\x00garbage", "neither MLIR bytecode"),
        ("hello", "line 1"),
        (HEAD + ADD[:40], "line 2"),
        (
            HEAD + "  %r = stablehlo.add %x, %y : tensor<4xf32>\n  return %r : tensor<4xf32>\n}",
            "undeclared SSA value",
        ),
        (
            HEAD + "  %r = stablehlo.add %x, %x : tensor<5xf32>\n  return %r : tensor<5xf32>\n}",
            "different type",
        ),
        (
            HEAD
            + '  %r = "stablehlo.transpose"(%x) <{permutation = array<i64: 1>}> : (tensor<4xf32>) -> tensor<4xf32>\n'
            "  return %r : tensor<4xf32>\n}",
            "permutation",
        ),
        (
            HEAD + '  %r = "foo.bar"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}',
            "foo.bar",
        ),
        (HEAD + "  %r = foo.bar %x : tensor<4xf32>\n  return %r : tensor<4xf32>\n}", "`foo'"),
        (LINALG, "'linalg'"),
        ("module {}", "no function with a body"),
        ("func.func private @main()", "no function with a body"),
        (HEAD.replace("@main", "private @f") + ADD, "private"),
        (
            HEAD.replace("@main", "@f") + ADD + HEAD.replace("@main", "@g") + ADD,
            "several public functions (@f, @g)",
        ),
        ("module { module { " + HEAD + ADD + "} }", "flat module"),
        (
            HEAD + "  %r = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}",
            "@main is recursive",
        ),
        (
            HEAD
            + "  %r = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}\n"
            + HEAD.replace("@main", "private @f")
            + '  %r = stablehlo.composite "a.b" %x {decomposition = @main} : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}',
            "recursive",
        ),
        (
            HEAD + "  %r = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}\n"
            "func.func private @f(tensor<4xf32>) -> tensor<4xf32>",
            "@f, which has no body",
        ),
    ],
)
def test_invalid_programs_say_what_is_wrong(program: str | bytes, said: str) -> None:
    assert said in reject(InvalidProgram, program)


def test_stablehlo_is_not_linalg() -> None:
    assert "format 'stablehlo'" in reject(InvalidProgram, HEAD + ADD, "linalg")
    assert "format 'linalg'" in reject(InvalidProgram, LINALG, "stablehlo")
    assert "unknown format" in reject(InvalidProgram, HEAD + ADD, "hlo")


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("%t = stablehlo.create_token : !stablehlo.token", "stablehlo.create_token"),
        (
            "stablehlo.custom_call @print(%x) {has_side_effect = true} : (tensor<4xf32>) -> ()",
            "@print has side effects",
        ),
        ("%p = stablehlo.partition_id : tensor<ui32>", "communicates"),
        (
            '%p = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>} '
            ": (tensor<4xf32>) -> tensor<4xf32>",
            "stablehlo.all_gather",
        ),
    ],
)
def test_side_effects_are_rejected_by_name_and_place_even_when_dead(op: str, said: str) -> None:
    message = reject(UnsupportedOp, f'{HEAD}  {op} loc("model.py":7:3)\n{ADD}')
    assert said in message
    assert "model.py:7:3" in message


def test_what_is_no_tensor_does_not_cross_the_boundary() -> None:
    program = "func.func @main(%x: tuple<tensor<4xf32>>) -> tuple<tensor<4xf32>> {\n  return %x : tuple<tensor<4xf32>>\n}"
    assert "only tensors" in reject(UnsupportedOp, program)


def test_random_and_truncated_bytes_are_rejected() -> None:
    """In a process of its own: the native readers print to standard error."""
    script = """
import itertools, random, sys
from kcache_compiler import canonicalize
from kcache_compiler.errors import CompilerError
from tests.compiler.variants import text_of
from torch_mlir._mlir_libs import _stablehlo
rng = random.Random(7)
text = text_of("adam")
artifact = _stablehlo.serialize_portable_artifact_str(text, _stablehlo.get_minimum_version())
cases = [bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200))) for _ in range(60)]
cases += [b"ML\\xefR" + case for case in cases[:30]]
cases += [artifact[: rng.randrange(len(artifact))] for _ in range(30)]
cases += [text.encode()[: rng.randrange(len(text) - 3)] for _ in range(30)]
for format, case in itertools.product(("stablehlo", "linalg"), cases):
    try:
        canonicalize(case, format)
    except CompilerError as error:
        assert str(error)
    else:
        raise AssertionError(format, case)
print("all rejected")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout == "all rejected\n", done.stderr[-3000:]


def test_bytecode_and_portable_artifacts_have_the_key_of_their_text() -> None:
    for name in ("adam", "control", "transformer"):
        text = text_of(name)
        key = canonicalize(text.encode(), "stablehlo").spec_digest
        # The oldest version has no composites with attributes.
        for version in (
            "1.9.0" if name == "control" else _stablehlo.get_minimum_version(),
            _stablehlo.get_current_version(),
        ):
            artifact = _stablehlo.serialize_portable_artifact_str(text, version)
            assert canonicalize(artifact, "stablehlo").spec_digest == key
        assert canonicalize(bytecode(text), "stablehlo").spec_digest == key
    assert canonicalize(bytecode(LINALG), "linalg") == canonicalize(LINALG.encode(), "linalg")


def bytecode(text: str) -> bytes:
    import io

    from kcache_compiler.mlir.context import new_context, parse_module

    out = io.BytesIO()
    parse_module(text, new_context()).operation.write_bytecode(out)
    return out.getvalue()


def test_versioned_operations_have_the_key_of_their_text() -> None:
    """VHLO, as the serializer keeps it inside."""
    from kcache_compiler.mlir.context import new_context, parse_module, run_passes

    text = text_of("adam")
    module = parse_module(text, new_context())
    run_passes(module, "builtin.module(stablehlo-legalize-to-vhlo)")
    form = canonicalize(str(module).encode(), "stablehlo")
    assert form.spec_digest == canonicalize(text.encode(), "stablehlo").spec_digest


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ('"chlo.broadcast_add"(%x, %x) {broadcast_dimensions = array<i64: 0, -1>}', "broadcast_dimensions"),
        ('"chlo.top_k"(%x) {k = -9223372036854775808 : i64}', "line 3: k is negative"),
        (
            "stablehlo.convolution(%x, %x) dim_numbers = [b, 4611686018427387904]x[i, o]->[b, f]",
            "convolution",
        ),
        (
            "stablehlo.convolution(%x, %x) dim_numbers = [b, f, 4294967295]x[i, o, 0]->[b, f, 0]",
            "above every supported rank",
        ),
    ],
)
def test_numbers_that_end_the_native_parser_are_rejected(operation: str, said: str) -> None:
    assert said in reject(InvalidProgram, f"{HEAD}\n  %r = {operation}\n{ADD}")


def test_an_artifact_from_the_future_names_the_versions_that_work() -> None:
    artifact: bytes = _stablehlo.serialize_portable_artifact_str(
        text_of("adam"), _stablehlo.get_current_version()
    )
    current: str = _stablehlo.get_current_version()
    future = artifact.replace(
        f"StableHLO_v{current}".encode(), b"StableHLO_v9.99.9".ljust(len(f"StableHLO_v{current}"), b"0")
    )
    assert future != artifact
    script = (
        "import sys; from kcache_compiler import canonicalize\n"
        "try: canonicalize(sys.stdin.buffer.read(), 'stablehlo')\nexcept Exception as e: print(type(e).__name__, e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=future, capture_output=True, timeout=240, check=False
    )
    assert done.stdout.decode() == "" or b"InvalidProgram" in done.stdout


# -- limits


def test_a_huge_body_is_rejected_at_once() -> None:
    body = b"(" * 100_000_000
    started = time.process_time()
    assert "program size in bytes is 100000000" in reject(LimitExceeded, body)
    assert time.process_time() - started < 0.5  # a look at every byte takes longer


def test_deep_brackets_are_rejected_before_parsing() -> None:
    for opening in ("(", "[", "{", "<", "({"):
        assert "nesting of brackets" in reject(LimitExceeded, "module attributes {a = " + opening * 100_000)
    assert "nesting of brackets" in reject(LimitExceeded, f"func.func @main({'tuple<' * 5000}")


def test_bracket_depth_sees_no_strings_comments_or_arrows() -> None:
    assert bracket_depth(bare_text(b'"((((((" // [[[[[\n ( -> ) { [ ] }')) == 2
    assert bracket_depth(b"((()))((()))") == 3
    assert bracket_depth(b")))) ((") == 2
    assert bracket_depth(b"no brackets") == 0


def test_operations_are_counted_before_parsing() -> None:
    text = b"""// %c = stablehlo.add %x, %x
    %0 = stablehlo.add %x, %x : tensor<4xf32> loc("%1 = stablehlo.add")
    %2:2 = "stablehlo.while"(%i) : (tensor<i1>) -> (tensor<i1>, tensor<i1>)
    %3:2 = stablehlo.while(%a = %0, %b = %1) : tensor<i1>, tensor<i1>
    return %0 : tensor<4xf32>"""
    assert operation_count(bare_text(text)) == 3


def test_a_large_text_scans_fast() -> None:
    text = b'x = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32> loc("a"(#loc1)) -> y\n' * 100_000
    started = time.process_time()
    assert bracket_depth(bare_text(text)) == 3
    assert time.process_time() - started < 2


def chain(count: int) -> str:
    lines = [f"  %v{i + 1} = stablehlo.tanh %v{i} : tensor<4xf32>" for i in range(count)]
    head = "func.func @main(%v0: tensor<4xf32>) -> tensor<4xf32> {\n"
    return head + "\n".join(lines) + f"\n  return %v{count} : tensor<4xf32>\n}}\n"


def test_a_deep_chain_does_not_recurse_and_too_many_operations_are_rejected() -> None:
    assert canonicalize(chain(20_000).encode(), "stablehlo").operations == 20_000
    assert "number of operations" in reject(LimitExceeded, chain(300), limits=Limits(operations=250))


def test_calls_that_double_are_counted_once_per_distinct_operands_and_bounded() -> None:
    def level(i: int, second: str) -> str:
        return (
            f"func.func private @f{i}(%x: tensor<4xf32>) -> tensor<4xf32> {{\n"
            f"  %a = call @f{i + 1}(%x) : (tensor<4xf32>) -> tensor<4xf32>\n"
            f"  %b = call @f{i + 1}({second}) : (tensor<4xf32>) -> tensor<4xf32>\n"
            "  %r = stablehlo.add %a, %b : tensor<4xf32>\n  return %r : tensor<4xf32>\n}\n"
        )

    last = "func.func private @f40(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %r = stablehlo.tanh %x : tensor<4xf32>\n"
    last += "  return %r : tensor<4xf32>\n}\n"
    start = HEAD + "  %r = call @f0(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}\n"
    same = start + "".join(level(i, "%x") for i in range(40)) + last
    assert canonicalize(same.encode(), "stablehlo").operations == 41
    doubling = start + "".join(level(i, "%a") for i in range(40)) + last
    assert "after inlining" in reject(LimitExceeded, doubling, limits=Limits(operations=5000))


def test_long_chains_of_calls_are_rejected() -> None:
    functions = [
        f"func.func private @f{i}(%x: tensor<4xf32>) -> tensor<4xf32> {{\n  %r = call @f{i + 1}(%x) : "
        "(tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}\n"
        for i in range(300)
    ]
    last = HEAD.replace("@main", "private @f300") + ADD
    start = HEAD + "  %r = call @f0(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}\n"
    assert "depth of calls" in reject(LimitExceeded, start + "".join(functions) + last)


def test_deep_regions_are_rejected() -> None:
    def nested(depth: int) -> str:
        body = "stablehlo.return %x : tensor<4xf32>"
        for i in range(depth):
            body = (
                f'%r{i} = "stablehlo.if"(%p) ({{ {body} }}, {{ stablehlo.return %x : tensor<4xf32> }}) : (tensor<i1>) -> tensor<4xf32>\n'
                f"stablehlo.return %r{i} : tensor<4xf32>"
            )
        body = body.rpartition("stablehlo.return")[0] + f"return %r{depth - 1} : tensor<4xf32>"
        return f"func.func @main(%x: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {{\n{body}\n}}"

    assert canonicalize(nested(60).encode(), "stablehlo").operations == 1
    assert "nesting of regions" in reject(LimitExceeded, nested(70))


@pytest.mark.parametrize(
    ("type", "said"),
    [
        ("tensor<1152921504606846976xf32>", "elements of a tensor"),
        ("tensor<4294967296x4294967296x4294967296xf32>", "elements of a tensor"),
        (f"tensor<{'1x' * 40}f32>", "rank of a tensor"),
    ],
)
def test_huge_tensors_are_rejected_without_overflow(type: str, said: str) -> None:
    program = f"func.func @main(%x: {type}) -> {type} {{\n  %r = stablehlo.tanh %x : {type}\n  return %r : {type}\n}}"
    assert said in reject(LimitExceeded, program)


def test_a_huge_splat_costs_one_element() -> None:
    type = "tensor<1048576x1024xf32>"
    program = f"func.func @main(%x: {type}) -> {type} {{\n  %c = stablehlo.constant dense<2.0> : {type}\n"
    program += f"  %r = stablehlo.add %x, %c : {type}\n  return %r : {type}\n}}"
    assert "constant : f32[] | 00000040" in canonicalize(program.encode(), "stablehlo").spec_text


def test_constants_and_attributes_are_bounded() -> None:
    values = ", ".join(str(float(i)) for i in range(1000))
    program = (
        "func.func @main() -> tensor<1000xf32> {\n"
        + f"  %c = stablehlo.constant dense<[{values}]> : tensor<1000xf32>\n"
    )
    program += "  return %c : tensor<1000xf32>\n}"
    assert "bytes of constants is 4000" in reject(LimitExceeded, program, limits=Limits(constant_bytes=3000))
    aliases = "#a0 = [1, 2]\n" + "".join(f"#a{i + 1} = [#a{i}, #a{i}]\n" for i in range(60))
    call = "  %r = stablehlo.custom_call @f(%x) {mhlo.attributes = {a = #a60}} : (tensor<4xf32>) -> tensor<4xf32>\n"
    program = aliases + HEAD + call + "  return %r : tensor<4xf32>\n}"
    assert "characters of the attributes" in reject(
        LimitExceeded, program, limits=Limits(attribute_characters=10_000)
    )


def test_limits_on_arguments() -> None:
    assert "number of arguments" in reject(LimitExceeded, HEAD + ADD, limits=Limits(arguments=0))


# -- what a program says about itself


def test_arguments_are_named_by_their_locations() -> None:
    program = (
        'func.func @main(%x: tensor<4xf32> loc("params[\'w\']"), %y: tensor<4xf32> loc("x")) -> tensor<4xf32> {\n'
        "  %r = stablehlo.add %x, %y : tensor<4xf32>\n  return %r : tensor<4xf32>\n}"
    )
    assert canonicalize(program.encode(), "stablehlo").arg_names == ("params['w']", "x")
    assert canonicalize((HEAD + ADD).encode(), "stablehlo").arg_names == ("arg0",)


def test_dynamic_dims_are_symbols_named_by_argument_and_axis() -> None:
    program = (
        "func.func @main(%x: tensor<?x4x?xf32>, %y: tensor<?x4x?xf32>) -> tensor<?x4x?xf32> {\n"
        "  %r = stablehlo.add %x, %y : tensor<?x4x?xf32>\n  return %r : tensor<?x4x?xf32>\n}"
    )
    form = canonicalize(program.encode(), "stablehlo")
    assert str(form.arg_spec) == "f32[s0,4,s2];f32[s0,4,s2]"
    assert [(s.name, s.arg, s.axis) for s in form.symbols] == [("s0", 0, 0), ("s1", 0, 1), ("s2", 0, 2)]
    assert form.symbol_values == (-1, 4, -1)


def test_broadcasting_a_dim_of_unknown_size_is_an_operation() -> None:
    program = (
        "func.func @main(%x: tensor<?xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<?xf32>) -> tensor<4xf32>\n"
        "  %r = stablehlo.add %b, %y : tensor<4xf32>\n  return %r : tensor<4xf32>\n}"
    )
    assert "= broadcast_in_dim a0[0] : f32[s1]" in canonicalize(program.encode(), "stablehlo").spec_text


def test_numerics_are_part_of_the_spec() -> None:
    specs = {
        canonicalize((HEAD + ADD).encode(), "stablehlo", numerics).spec_digest
        for numerics in ("strict", "default", "fast")
    }
    assert len(specs) == 3
    with pytest.raises(InvalidProgram, match="numerics"):
        canonicalize((HEAD + ADD).encode(), "stablehlo", "sloppy")


def test_canonicalizing_is_a_pure_function() -> None:
    rng = random.Random(3)
    program = text_of("control").encode()
    forms = {canonicalize(program, "stablehlo").spec_text for _ in range(rng.randrange(3, 5))}
    assert len(forms) == 1
