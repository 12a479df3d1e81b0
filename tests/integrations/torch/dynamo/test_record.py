"""Records of source graphs: bytes and back, and bytes that are no record."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._functorch.partitioners import default_partition

from kcache_grpc.integrations.torch.dynamo.aot.capture import compile_with_aot
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import InvalidRecord, NotRecordable
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Plan, Program, executable
from kcache_grpc.integrations.torch.dynamo.record import Record, decode_record, digest_of, encode_record
from kcache_grpc.model.program import Program as SentProgram
from kcache_grpc.model.program import ProgramFormat
from tests.integrations.torch.dynamo.graphs import failing, lowered


class Compilation(NamedTuple):
    """A graph of Dynamo, AOTAutograd's entry for it, and its plans."""

    graph: Any
    inputs: Sequence[Any]
    entry: Any
    plans: dict[str, Plan]


class Backend:
    """A backend of ``torch.compile`` that keeps what it compiled."""

    def __init__(self) -> None:
        self.compilations: list[Compilation] = []

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        plans: dict[str, Plan] = {}

        def compiler(kind: str) -> Callable[..., Any]:
            def compile(module: Any, _: Any) -> Callable[..., Any]:
                result = lowered(module, kind)
                plans[kind] = result.plan
                run: Any = executable(result.plan, result.kernels)
                run._boxed_call = True
                return run

            return compile

        compiled, entry = compile_with_aot(
            graph,
            inputs,
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            partition_fn=default_partition,
            decompositions={},
            keep_inference_input_mutations=True,
        )
        self.compilations.append(Compilation(graph, inputs, entry, plans))
        return compiled


def compilation(function: Any, *inputs: Any, backward: bool = False) -> Compilation:
    torch._dynamo.reset()
    backend = Backend()
    result = torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    if backward:
        result.sum().backward()
    torch._dynamo.reset()
    [compiled] = backend.compilations
    assert compiled.entry is not None
    return compiled


def function(x: Any) -> Any:
    return torch.tanh(x) * 2 + 1


@pytest.fixture(scope="module")
def inference() -> Compilation:
    return compilation(function, torch.ones(3, 4))


@pytest.fixture(scope="module")
def body(inference: Compilation) -> bytes:
    return encode_record(inference.entry, inference.plans)


def rebuilt(record: Record, compiled: Compilation) -> Callable[..., Any]:
    """What a later process calls."""
    runners = {kind: executable(plan, failing(plan.programs)) for kind, plan in record.plans.items()}
    forward = runners.get("inference") or runners["forward"]
    return record.result.wrap(forward, runners.get("backward"), compiled.inputs, compiled.graph)


def test_a_record_runs_without_tracing(inference: Compilation, body: bytes) -> None:
    record = decode_record(body)
    x = torch.randn(3, 4)
    torch.testing.assert_close(rebuilt(record, inference)(x), [function(x)], rtol=0, atol=0)
    assert record.plans == inference.plans


def test_a_record_with_a_backward_graph() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    x = torch.randn(3, 4, requires_grad=True)
    compiled = compilation(module, x, backward=True)
    record = decode_record(encode_record(compiled.entry, compiled.plans))
    assert set(record.plans) == {"forward", "backward"}
    values = [value.detach().requires_grad_(value.requires_grad) for value in compiled.inputs]
    [result] = rebuilt(record, compiled)(*values)
    result.sum().backward()
    leaves = [x, *module.parameters()]
    expected = torch.autograd.grad(module(x).sum(), leaves)
    # No two leaves have equal shapes.
    gradients = {value.shape: value.grad for value in values}
    assert len(gradients) == len(leaves)
    for leaf, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(gradients[leaf.shape], gradient)


def test_equal_graphs_have_equal_records(inference: Compilation, body: bytes) -> None:
    again = compilation(function, torch.ones(3, 4))
    assert encode_record(again.entry, again.plans) == body


def test_programs_are_digested_as_the_service_does(inference: Compilation, body: bytes) -> None:
    [program] = inference.plans["inference"].programs
    digest = SentProgram(ProgramFormat.TORCH, program.text).digest
    assert digest_of(program) == digest
    assert decode_record(body).program_digests == (digest,)
    plans = {"inference": inference.plans["inference"], "other": inference.plans["inference"]}
    assert Record(decode_record(body).result, plans).program_digests == (digest,)


def test_a_plan_without_json_is_not_recordable(inference: Compilation) -> None:
    plan = Plan(0, (torch.ones(1),), (), (), ())
    with pytest.raises(NotRecordable, match="tensor constants"):
        encode_record(inference.entry, {"inference": plan})


# Damage.


def changed(body: bytes, *path: Any, value: Any) -> bytes:
    data = json.loads(body)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return json.dumps(data).encode()


_GRAPH = ("graphs", "inference")
_TEXT = (*_GRAPH, "programs", 0, "text")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 99),
        (("aot",), None),
        (("aot",), {}),
        (("graphs",), []),
        (("graphs",), {}),
        (_GRAPH, None),
        ((*_GRAPH, "plan"), {}),
        ((*_GRAPH, "plan", "outputs"), [{"register": 77}]),
        ((*_GRAPH, "plan", "steps"), [["operator", "aten.relu_.default", {"tuple": []}, {}, 1]]),
        ((*_GRAPH, "programs"), []),
        ((*_GRAPH, "programs"), 3),
        (_TEXT, "no base64!"),
        (_TEXT, base64.b64encode(b"no zlib").decode()),
        (_TEXT, base64.b64encode(zlib.compress(b"module {}")[:-3]).decode()),
        (_TEXT, 7),
    ],
)
def test_a_changed_record_is_invalid(body: bytes, path: Any, value: Any) -> None:
    with pytest.raises(InvalidRecord):
        decode_record(changed(body, *path, value=value))


def test_the_graphs_are_those_of_the_metadata(body: bytes) -> None:
    data = json.loads(body)
    data["graphs"] = {"forward": data["graphs"]["inference"]}
    with pytest.raises(InvalidRecord, match="the record has the graphs forward"):
        decode_record(json.dumps(data).encode())


def test_text_that_unpacks_to_gigabytes_is_invalid(body: bytes) -> None:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(65)) + packer.flush()
    with pytest.raises(InvalidRecord, match="cut off or too long"):
        decode_record(changed(body, *_TEXT, value=base64.b64encode(packed).decode()))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"7", b"\xff\xfe", b'"format"', b"[" * 200_000, b'{"format": 1}']
)
def test_bytes_that_are_no_record(body: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode_record(body)


@given(st.data())
def test_corrupted_bytes_are_invalid_or_a_record(body: bytes, data: Any) -> None:
    position = data.draw(st.integers(0, len(body) - 1))
    byte = data.draw(st.integers(0, 255))
    damaged = bytearray(body)
    damaged[position] = byte
    for candidate in (
        bytes(damaged),
        body[:position],
        body[position:],
        body[:position] + body[position + 1 :],
    ):
        with contextlib.suppress(InvalidRecord):
            decode_record(candidate)


def test_a_program_keeps_its_text_and_whether_it_is_dynamic(inference: Compilation) -> None:
    plan = inference.plans["inference"]
    programs = (Program(b"module {}" * 1000, True),)
    plans = {"inference": Plan(plan.inputs, (), plan.steps, plan.outputs, programs)}
    assert decode_record(encode_record(inference.entry, plans)).plans["inference"].programs == programs
