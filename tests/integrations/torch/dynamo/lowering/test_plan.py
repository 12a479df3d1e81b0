"""Plans: JSON and back, JSON that is no plan, execution, lifetimes of registers, fallbacks of kernels."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import weakref
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_grpc.errors import KcacheError
from kcache_grpc.integrations.torch.dynamo.lowering.plan import (
    VERSION,
    KernelStep,
    Layout,
    OperatorStep,
    Plan,
    PlanError,
    Program,
    Register,
    decode_plan,
    encode_plan,
    executable,
    registers_in,
    target_name,
)

aten: Any = torch.ops.aten

TARGETS: tuple[Any, ...] = (
    *(
        aten.add.Tensor,
        aten.sum.dim_IntList,
        aten.copy_.default,
        torch.ops.prims.convert_element_type.default,
    ),
    *(operator.getitem, operator.mul, torch.sym_max, torch.sym_float, math.floor),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.sampled_from([torch.float32, torch.bool, torch.complex64, torch.strided, torch.channels_last]),
    st.sampled_from([torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")]),
)
LAYOUTS = st.one_of(
    st.none(), st.just("copy"), st.permutations(range(3)).map(lambda order: Layout(tuple(order)))
)


def arguments(registers: int) -> Any:
    """Arguments over the first registers, nested."""
    leaves = st.one_of(SCALARS, st.integers(0, registers - 1).map(Register)) if registers else SCALARS

    def nested(values: Any) -> Any:
        slices = st.builds(slice, values, values, values)
        return st.one_of(st.lists(values, max_size=3), st.lists(values, max_size=3).map(tuple), slices)

    return st.recursive(leaves, nested, max_leaves=6)


@st.composite
def plans(draw: Any) -> Plan:
    """Plans of up to 5 steps, that are defined but do not run."""
    inputs = draw(st.integers(0, 3))
    programs = tuple(Program(f"module {index}".encode(), draw(st.booleans())) for index in range(2))
    steps: list[Any] = []
    defined = inputs
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            steps.append(operator_step(draw, defined, defined))
            defined += 1
            continue
        read = draw(st.lists(st.integers(0, defined - 1), unique=True)) if defined else []
        split = draw(st.integers(0, len(read)))
        results = tuple(range(defined, defined + draw(st.integers(1, 2))))
        steps.append(
            KernelStep(
                draw(st.integers(0, 1)),
                tuple(read[:split]),
                tuple(draw(LAYOUTS) for _ in read[:split]),
                results,
                tuple(draw(LAYOUTS) for _ in results),
                tuple(
                    OperatorStep(aten.add.Tensor, tuple(map(Register, read)), {}, index) for index in results
                ),
                tuple(read[split:]),
            )
        )
        defined += len(results)
    return Plan(inputs, (), tuple(steps), tuple(draw(st.lists(arguments(defined), max_size=3))), programs)


def operator_step(draw: Any, registers: int, result: int) -> OperatorStep:
    args = tuple(draw(st.lists(arguments(registers), max_size=3)))
    kwargs = draw(
        st.dictionaries(st.sampled_from(["dim", "dtype", "other"]), arguments(registers), max_size=2)
    )
    return OperatorStep(draw(st.sampled_from(TARGETS)), args, kwargs, result)


# JSON.


@settings(max_examples=settings().max_examples // 3)
@given(plans())
def test_a_plan_survives_json(plan: Plan) -> None:
    decoded = decode_plan(json.loads(json.dumps(encode_plan(plan))), plan.programs)
    assert repr(decoded) == repr(plan)


def test_floats_survive_json_bit_for_bit() -> None:
    values = (math.nan, -0.0, math.inf, 1e-320, 0.1)
    plan = Plan(0, (), (), values, ())
    decoded = decode_plan(json.loads(json.dumps(encode_plan(plan))), ())
    assert list(map(repr, decoded.outputs)) == list(map(repr, values))


def test_a_plan_with_constants_has_no_json() -> None:
    with pytest.raises(PlanError, match="tensor constants"):
        encode_plan(Plan(0, (torch.ones(1),), (), (), ()))


@pytest.mark.parametrize("value", [torch.ones(1), {}, 1j, object()])
def test_an_argument_of_another_type_has_no_json(value: Any) -> None:
    with pytest.raises(PlanError, match="an argument is a"):
        encode_plan(Plan(0, (), (), (value,), ()))


@pytest.mark.parametrize(
    "target", [max, print, torch.relu, len, torch.ops.profiler._record_function_enter.default]
)
def test_a_target_that_another_process_might_not_have_has_no_name(target: Any) -> None:
    with pytest.raises(PlanError):
        target_name(target)


@pytest.mark.parametrize("target", TARGETS)
def test_names_of_targets(target: Any) -> None:
    data = plan_data(["operator", target_name(target), {"tuple": []}, {}, 0])
    [step] = decode_plan(data, ()).steps
    assert isinstance(step, OperatorStep)
    assert step.target is target


# JSON that is no plan.


def plan_data(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"version": VERSION, "inputs": 1, "steps": list(steps), "outputs": [], **fields}


def call(name: Any = "aten.relu.default", args: Any = None, kwargs: Any = None, result: Any = 1) -> list[Any]:
    default = {"tuple": [{"register": 0}]}
    return ["operator", name, default if args is None else args, kwargs or {}, result]


def kernel(**fields: Any) -> list[Any]:
    values = {
        "kernel": 0,
        "inputs": [0],
        "input_layouts": [None],
        "results": [1],
        "result_layouts": [None],
        "fallback": [call()],
        "scalars": [],
        "lazy": [],
        **fields,
    }
    return ["kernel", *values.values()]


def test_the_templates_are_plans() -> None:
    assert len(decode_plan(plan_data(call(), kernel(results=[1])), [Program(b"", False)]).steps) == 2


_NAMES = (
    *("aten.relu_.default", "aten.add.out", "aten.set_.source_Tensor", "aten.from_file.default"),
    *("aten.no_such.default", "aten.relu.no_such", "aten.relu", "aten", "", "aten.relu.default.default"),
    *("builtins.eval", "os.system", "operator.attrgetter", "torch.load", "torch.ops", "math.__loader__"),
    *(
        "aten.__class__.mro",
        "aten.relu.__call__",
        "aten.relu._op",
        "profiler.x.y",
        "aten.relu.default\n",
        7,
        None,
    ),
    *("operator.__builtins__", "prims.__init__.default", ["aten.relu.default"]),
)


@pytest.mark.parametrize("name", _NAMES)
def test_targets_that_a_plan_may_not_have(name: Any) -> None:
    with pytest.raises(PlanError):
        decode_plan(plan_data(call(name)), ())


@pytest.mark.parametrize("name", ["relu_.default", "set_.source_Tensor", "add.out", "from_file.default"])
def test_a_plan_names_no_operator_that_no_plan_may_have(name: str) -> None:
    packet, _, overload = name.partition(".")
    with pytest.raises(PlanError, match="other effects than its results"):
        target_name(getattr(getattr(torch.ops.aten, packet), overload))


_BROKEN: dict[str, Any] = {
    "null": None,
    "number": 7,
    "list": [],
    "text": "plan",
    "other version": plan_data(version=VERSION + 1),
    "no version": {"inputs": 0, "steps": [], "outputs": []},
    "no steps": {"version": VERSION, "inputs": 0, "outputs": []},
    "negative inputs": plan_data(inputs=-1),
    "inputs that are text": plan_data(inputs="1"),
    "inputs that are a float": plan_data(inputs=1.0),
    "inputs without end": plan_data(inputs=10**15),
    "steps that are a number": plan_data(steps=3),
    "a step that is a number": plan_data(3),
    "an empty step": plan_data([]),
    "a step of another kind": plan_data(["call", *call()[1:]]),
    "a short step": plan_data(call()[:3]),
    "a long step": plan_data([*call(), 1]),
    "arguments that are a list": plan_data(call(args=[{"register": 0}])),
    "arguments that are a number": plan_data(call(args=3)),
    "keywords that are a list": plan_data(["operator", "aten.relu.default", {"tuple": []}, [1], 1]),
    "a keyword that is code": plan_data(call(kwargs={"x=print()": 1})),
    "a reserved keyword": plan_data(call(kwargs={"lambda": 1})),
    "a result that is text": plan_data(call(result="1")),
    "a result that is true": plan_data(call(result=True)),
    "a negative result": plan_data(call(result=-1)),
    "an undefined register": plan_data(call(args={"tuple": [{"register": 5}]})),
    "an undefined register in a keyword": plan_data(call(kwargs={"x": [{"register": 5}]})),
    "a register of its own": plan_data(call(args={"tuple": [{"register": 1}]})),
    "a register that is text": plan_data(call(args={"tuple": [{"register": "0"}]})),
    "an undefined output": plan_data(outputs=[{"register": 1}]),
    "an output of no kind": plan_data(outputs=[{"object": 1}]),
    "an output of two kinds": plan_data(outputs=[{"float": "0x1p0", "register": 0}]),
    "an output of none": plan_data(outputs=[{}]),
    "a float that is none": plan_data(outputs=[{"float": "one"}]),
    "a float without end": plan_data(outputs=[{"float": "0x1p99999"}]),
    "an unknown dtype": plan_data(outputs=[{"torch": "torch.load"}]),
    "a dtype that is a list": plan_data(outputs=[{"torch": []}]),
    "an unknown device": plan_data(outputs=[{"device": "nowhere"}]),
    "a slice of four": plan_data(outputs=[{"slice": [1, 2, 3, 4]}]),
    "a tuple that is a number": plan_data(outputs=[{"tuple": 1}]),
    "a kernel without program": plan_data(kernel(kernel=1)),
    "a negative kernel": plan_data(kernel(kernel=-1)),
    "a kernel that is text": plan_data(kernel(kernel="0")),
    "an input without layout": plan_data(kernel(input_layouts=[])),
    "a result without layout": plan_data(kernel(result_layouts=[])),
    "a layout that is no permutation": plan_data(kernel(input_layouts=[[0, 2]])),
    "a layout that is text": plan_data(kernel(input_layouts=["c"])),
    "an undefined input": plan_data(kernel(inputs=[3], fallback=[call(args={"tuple": [{"register": 3}]})])),
    "a fallback that reads another register": plan_data(kernel(inputs=[], input_layouts=[])),
    "a fallback without a result": plan_data(kernel(results=[2], fallback=[call()])),
    "a fallback with a kernel": plan_data(kernel(fallback=[kernel()])),
    "a fallback that is no list": plan_data(kernel(fallback=1)),
    "a fallback with a mutable operator": plan_data(kernel(fallback=[call("aten.relu_.default")])),
}


@pytest.mark.parametrize("name", _BROKEN)
def test_json_that_is_no_plan(name: str) -> None:
    with pytest.raises(PlanError):
        decode_plan(_BROKEN[name], [Program(b"", False)])


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda values: st.one_of(st.lists(values), st.dictionaries(st.text(max_size=8), values)),
        max_leaves=10,
    )
)
def test_any_json_is_a_plan_or_an_error(data: Any) -> None:
    for candidate in (data, plan_data(data), plan_data(outputs=data), plan_data(call(args=data))):
        with contextlib.suppress(PlanError):
            executable(decode_plan(candidate, [Program(b"", False)]), [lambda _: ()])


# Execution.


def run(plan: Plan, *inputs: Any, kernels: Any = ()) -> Any:
    return executable(plan, kernels)(list(inputs))


def step(target: Callable[..., Any], *args: Any, result: int, **kwargs: Any) -> OperatorStep:
    return OperatorStep(target, args, kwargs, result)


def test_arguments_are_nested_registers_and_values() -> None:
    register = Register(0)

    def target(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    plan = Plan(
        2,
        (),
        (
            step(
                target,
                [register, 7],
                (register, None),
                slice(register, None),
                Register(1),
                key=[register],
                result=2,
            ),
        ),
        (Register(2), register, None, 2.5, [Register(1)]),
        (),
    )
    [call, *others] = run(plan, 3, "x")
    assert call == (([3, 7], (3, None), slice(3, None), "x"), {"key": [3]})
    assert others == [3, None, 2.5, ["x"]]


def test_the_list_of_arguments_is_emptied() -> None:
    arguments = [torch.ones(2), 3]
    executable(Plan(2, (), (), (), ()), ())(arguments)
    assert arguments == []


def test_constants_are_registers_behind_the_inputs() -> None:
    constant = torch.ones(2)
    [result] = run(
        Plan(
            1, (constant,), (step(aten.add.Tensor, Register(0), Register(1), result=2),), (Register(2),), ()
        ),
        3,
    )
    assert result.tolist() == [4, 4]


def test_a_plan_without_inputs_and_results() -> None:
    assert run(Plan(0, (), (), (), ())) == []


def test_registers_are_freed_after_their_last_use() -> None:
    freed: list[list[bool]] = []
    references: list[Any] = []

    def observe(value: Any) -> Any:
        freed.append([reference() is None for reference in references])
        return value

    def double(value: Any) -> Any:
        result = value * 2
        references.append(weakref.ref(result))
        return result

    steps = (
        step(double, Register(0), result=1),  # read once more
        step(double, Register(1), result=2),  # the last use of register 1
        step(observe, None, result=3),
        step(double, Register(2), result=4),
        step(observe, None, result=5),
    )
    value = torch.ones(2)
    references.append(weakref.ref(value))
    arguments = [value]
    del value
    [result] = executable(Plan(1, (), steps, (Register(4),), ()), ())(arguments)
    assert freed == [[True, True, False], [True, True, True, False]]
    assert result.tolist() == [8, 8]


def test_registers_of_an_argument() -> None:
    argument = ([Register(1), slice(Register(2), None, Register(1))], (Register(3), 4))
    assert list(registers_in(argument)) == [1, 2, 1, 3]


# Kernels.


class Kernel:
    """Adds its inputs, or raises an error; ``failed`` keeps what it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.tensors: list[Any] = []
        self.told: list[Exception] = []

    def __call__(self, tensors: list[Any]) -> Any:
        self.tensors = tensors
        if self.error is not None:
            raise self.error
        return (sum(tensors),)

    def failed(self, error: Exception) -> None:
        self.told.append(error)


def kernel_plan(layout: Any = None, result_layout: Any = None) -> Plan:
    """Twice the input plus one, by a kernel that takes the input and its double, or by operators."""
    fallback = (
        step(aten.mul.Tensor, Register(0), Register(1), result=2),
        step(aten.add.Tensor, Register(2), 1, result=3),
    )
    kernel = KernelStep(0, (0,), (layout,), (3,), (result_layout,), fallback, (1,))
    return Plan(2, (), (kernel,), (Register(3),), (Program(b"", False),))


def test_a_kernel_gets_its_inputs_alone() -> None:
    kernel = Kernel()
    [result] = run(kernel_plan(), torch.ones(2), 2, kernels=[kernel])
    assert result.tolist() == [1, 1]
    assert len(kernel.tensors) == 1
    assert kernel.told == []


def test_operators_run_where_a_kernel_fails() -> None:
    error = KcacheError("no memory")
    kernel = Kernel(error)
    for _ in range(2):
        [result] = run(kernel_plan(), torch.ones(2), 2, kernels=[kernel])
        assert result.tolist() == [3, 3]
    assert kernel.told == [error, error]


def test_an_error_of_a_kernel_that_wants_no_report_is_raised() -> None:
    def kernel(_: Any) -> Any:
        raise KcacheError("broken")

    with pytest.raises(KcacheError, match="broken"):
        run(kernel_plan(), torch.ones(2), 2, kernels=[kernel])


def test_inputs_and_results_are_permuted_to_row_major_and_back() -> None:
    x = torch.arange(6.0).view(2, 3).t()
    kernel = Kernel()
    [result] = run(kernel_plan(Layout((1, 0)), Layout((1, 0))), x, 2, kernels=[kernel])
    assert kernel.tensors[0].data_ptr() == x.data_ptr()
    assert kernel.tensors[0].is_contiguous()
    assert torch.equal(result, x)
    assert result.stride() == x.stride()


@given(st.permutations(range(4)))
def test_the_inverse_of_a_layout(order: list[int]) -> None:
    x = torch.empty(2, 3, 4, 5)
    assert x.permute(order).permute(Layout(tuple(order)).inverse).shape == x.shape


def test_an_input_of_no_known_layout_is_copied() -> None:
    kernel = Kernel()
    x = torch.ones(4, 4)[::2, ::2]
    run(kernel_plan("copy"), x, 2, kernels=[kernel])
    assert kernel.tensors[0].is_contiguous()
    row_major = torch.ones(2)
    run(kernel_plan("copy"), row_major, 2, kernels=[kernel])
    assert kernel.tensors[0] is row_major
