"""The writer against torch-mlir's importer: equal canonical specs for the same graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.export import Dim
from torch.nn import functional

from kcache_grpc.errors import ArgumentError, UnsupportedOp
from kcache_grpc.programs.torch.decompositions.table import decompositions
from kcache_grpc.programs.torch.dynamic_shapes import samples_of, symbols_of
from kcache_grpc.programs.torch.export import torch_program
from kcache_grpc.programs.torch.graph_text.program import (
    Island,
    line_owners,
    prepare_graph,
    unsupported_reason,
    write_program,
)
from tests.compiler.torch_modules import Function
from tests.programs.torch.graph_text.cases import CASES, REJECTED, encoder
from tests.programs.torch.graph_text.harness import graph_of, imported, island_of, spec, unsupported, written

aten: Any = torch.ops.aten


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_the_spec_is_that_of_the_importers_text(name: str) -> None:
    function, inputs = CASES[name]
    graph = graph_of(function, *inputs)
    assert unsupported(graph) == {}
    expected = spec(imported(graph))
    assert not isinstance(expected, str)
    assert spec(written(graph)) == expected


@pytest.mark.parametrize("name", REJECTED)
def test_a_rejected_program_is_rejected_for_the_same_operation(name: str) -> None:
    function, inputs = REJECTED[name]
    graph = graph_of(function, *inputs)
    expected = spec(imported(graph))
    assert isinstance(expected, str)
    assert spec(written(graph)) == expected


# Orders of axes.


def permuted(function: Callable[..., Any], inputs: list[Any], outputs: list[Any]) -> Callable[..., Any]:
    """The function of inputs with their axes in orders, which returns results with axes in orders."""

    def run(*values: Any) -> Any:
        restored = [
            value if order is None else value.permute(*sorted(range(len(order)), key=order.__getitem__))
            for value, order in zip(values, inputs, strict=True)
        ]
        results = function(*restored)
        return [
            value if order is None else value.permute(order)
            for value, order in zip(results, outputs, strict=True)
        ]

    return run


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([(1, 2, 0), None], [None, (2, 0, 1)]),
        ([(0, 2, 1), (1, 0)], [(2, 1, 0), (0, 2, 1)]),
        ([None, (1, 0)], [(0, 1, 2), None]),
    ],
)
def test_orders_are_permutations_of_inputs_and_results(inputs: list[Any], outputs: list[Any]) -> None:
    def function(x: Any, y: Any) -> list[Any]:
        return [x @ y, torch.softmax(x, -1) + 1]

    x, y = torch.ones(2, 3, 4), torch.ones(4, 4)
    text = written(graph_of(function, x, y), input_orders=inputs, output_orders=outputs)
    stored = [
        value if order is None else value.permute(order) for value, order in zip((x, y), inputs, strict=True)
    ]
    assert spec(text) == spec(imported(graph_of(permuted(function, inputs, outputs), *stored)))


# Dynamic sizes.


def dynamic_texts(function: Callable[..., Any], inputs: tuple[Any, ...], shapes: Any) -> tuple[bytes, bytes]:
    """The text of the writer and that of an exported program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(Function(function), inputs, dynamic_shapes=(tuple(shapes),))
        program = exported.run_decompositions(decompositions())
    expected, _ = torch_program(exported)
    prepare_graph(program.graph)
    samples = samples_of(program.graph, symbols_of(program))
    return write_program(island_of(program.graph), samples), expected


_ROWS, _COLUMNS = Dim("rows", min=2, max=4096), Dim("columns", min=4, max=4096)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("function", "inputs", "shapes"),
    [
        (lambda x: torch.softmax(x * 2 + 1, -1), [(5, 7)], [{0: _ROWS, 1: _COLUMNS}]),
        (lambda x, y: x @ y, [(5, 4), (4, 7)], [{0: _ROWS}, {1: _COLUMNS}]),
        (lambda x, y: x + y, [(5, 4), (5, 1)], [{0: _ROWS}, {0: _ROWS}]),
        (lambda x: functional.layer_norm(x, (4,)).reshape(x.shape[0] * 2, 2), [(5, 4)], [{0: _ROWS}]),
        (lambda x: torch.cat([x, x]).sum(1), [(5, 7)], [{0: _ROWS, 1: _COLUMNS}]),
        (lambda x: x.new_zeros(x.shape[0], 3) + x[:, :3], [(5, 7)], [{0: _ROWS, 1: _COLUMNS}]),
        (lambda x, w, b: encoder(x, w, b), [(2, 5, 8), (24, 8), (24,)], [{1: _ROWS}, None, None]),
        (lambda x, w: functional.conv2d(x, w, padding=1), [(5, 3, 6, 6), (4, 3, 3, 3)], [{0: _ROWS}, None]),
    ],
    ids=["softmax", "matmul", "broadcast", "reshape", "cat", "zeros", "encoder", "convolution"],
)
def test_dynamic_sizes(function: Callable[..., Any], inputs: Any, shapes: Any) -> None:
    text, expected = dynamic_texts(function, tuple(torch.ones(sizes) for sizes in inputs), shapes)
    assert spec(text) == spec(expected)
    assert b"kcache.open_axes" in text


# Text.


def test_equal_graphs_have_equal_texts_without_names_or_places() -> None:
    function, inputs = CASES["encoder"]
    text = written(graph_of(function, *inputs))
    assert text == written(graph_of(function, *inputs))
    assert b"loc(" not in text
    assert b".py" not in text


def test_strings_are_escaped() -> None:
    function, inputs = CASES["gradients, activations"]
    assert b'"torch.constant.str"' in written(graph_of(function, *inputs))


def test_a_node_that_reads_what_is_no_part_of_the_program_is_an_error() -> None:
    graph = graph_of(lambda x: torch.exp(x) + 1, torch.ones(3))
    island = island_of(graph)
    with pytest.raises(ArgumentError, match="which is no part of it") as raised:
        write_program(Island(island.nodes[1:], island.inputs, island.outputs))
    assert raised.value.metadata["node"] == island.nodes[1].name


@pytest.mark.parametrize("orders", [{}, {"input_orders": [[1, 0]], "output_orders": [[1, 0]]}])
@pytest.mark.parametrize("samples", [(), ({}, {})])
def test_each_line_has_the_node_whose_operations_it_has(samples: Any, orders: Any) -> None:
    """``samples`` without symbols write two functions, as those with symbols do."""
    island = island_of(graph_of(lambda x: torch.exp(x.sort()[0]) + 1, torch.ones(2, 3)))
    lines = write_program(island, samples, **orders).decode().splitlines()
    owners = line_owners(island, samples, **orders)
    assert len(owners) == len(lines)
    operations = {"sort": "torch.aten.sort", "exp": "torch.aten.exp", "add": "torch.aten.add.Scalar"}
    for name, operation in operations.items():
        [node] = [node for node in island.nodes if node.name == name]
        owned = [line for line, owner in zip(lines, owners, strict=True) if owner is node]
        assert sum(f'"{operation}"(' in line for line in owned) == (len(samples) or 1)
    rest = "\n".join(line for line, owner in zip(lines, owners, strict=True) if owner is None)
    assert not any(operation in rest for operation in operations.values())
    assert ("torch.aten.permute" in rest) == bool(orders)


def test_a_number_in_place_of_a_list_is_unsupported() -> None:
    graph = graph_of(lambda x: aten.sum.dim_IntList(x, [1]), torch.ones(3, 3))
    [node] = [node for node in graph.nodes if node.op == "call_function"]
    node.args = (node.args[0], 1)
    with pytest.raises(UnsupportedOp, match="a number in place of a list"):
        written(graph)


# What cannot be part of a program.


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (torch.rand_like, [torch.ones(3)], "it draws random numbers"),
        (lambda x: torch.as_strided(x, (2,), (1,)), [torch.ones(3)], "strides are not part of a program"),
        (lambda x: aten.copy_.default(x, x), [torch.ones(3)], "it writes to an operand"),
        (lambda x: aten.relu_.default(x), [torch.ones(3)], "it writes to an operand"),
        (lambda x: aten._to_sparse.default(x), [torch.ones(3)], "kcache does not lower it"),
        (
            lambda x: x.view(torch.uint16),
            [torch.ones(3, dtype=torch.int16)],
            "a tensor has the dtype torch.uint16",
        ),
    ],
)
def test_reasons(function: Callable[..., Any], inputs: list[Any], reason: str) -> None:
    module = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*inputs)
    reasons = [unsupported_reason(node) for node in module.graph.nodes if node.op == "call_function"]
    assert reason in reasons


def test_a_python_function_is_no_operator_of_aten() -> None:
    graph = torch.fx.Graph()
    node = graph.call_function(max, (graph.placeholder("x"), 1))
    assert unsupported_reason(node) == "it is no operator of ATen"
