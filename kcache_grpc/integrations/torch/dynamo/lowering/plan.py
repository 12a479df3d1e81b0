"""The plan of a graph: operators that PyTorch runs and calls of kernels, in order, over numbered registers.

A plan has no reference to the FX graph that it was made from. It is encoded as JSON, so that a later process
runs it without tracing. ``executable`` compiles it to one Python function.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from typing import Any, NamedTuple, cast

from kcache_grpc.integrations.torch.dynamo.lowering.updates import UPDATES

torch: Any = import_module("torch")

#: Increased when the JSON of plans changes: plans of other versions are not read.
VERSION = 3
_PYTHON = {
    name: getattr(operator, name)
    for name in ("add", "eq", "floordiv", "ge", "getitem", "gt", "le", "lt", "mod", "mul", "ne", "neg", "pow")
    + ("sub", "truediv", "pos")
}
_SYMBOLIC = ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum")
_MATH = ("ceil", "floor", "trunc")
_DTYPES = {
    str(value): value
    for name in dir(torch)
    if isinstance(value := getattr(torch, name), (torch.dtype, torch.layout, torch.memory_format))
}
#: Operators of ``aten`` that a plan from elsewhere may not name: they read or write files.
_FORBIDDEN = frozenset({"aten::from_file", "aten::_load_for_lite_interpreter"})


#: The namespace of recurrent layers, which are defined when a plan names them: a warm start of other models
#: does not import their module.
RECURRENT = "kcache"
#: Namespaces of operators that any process has.
_NAMESPACES = ("aten", "prims", RECURRENT)

#: A plan from elsewhere with more inputs is none.
_MOST_INPUTS = 1 << 20


class PlanError(Exception):
    """A plan cannot be encoded, or JSON is no plan; the text says why."""


@dataclass(frozen=True)
class Register:
    """The value of an input or of an earlier step."""

    index: int


@dataclass(frozen=True)
class OperatorStep:
    """``result = target(*args, **kwargs)``; values in ``args`` and ``kwargs`` may be or contain registers."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: int


class Layout(NamedTuple):
    """How a tensor is laid out: the permutation of its axes that is row-major, or none of them."""

    order: tuple[int, ...]

    @property
    def inverse(self) -> tuple[int, ...]:
        """From the row-major tensor back to the value."""
        return tuple(sorted(range(len(self.order)), key=self.order.__getitem__))


#: ``None``: row-major. ``"copy"``: perhaps no permutation is row-major, so that a kernel may get a copy.
LayoutLike = Layout | str | None


@dataclass(frozen=True)
class KernelStep:
    """``results = kernel(*inputs)``, or ``fallback``, which computes the same registers with operators."""

    kernel: int
    inputs: tuple[int, ...]
    input_layouts: tuple[LayoutLike, ...]
    results: tuple[int, ...]
    result_layouts: tuple[LayoutLike, ...]
    fallback: tuple[OperatorStep, ...]
    #: Sizes and scalars that only the fallback reads.
    scalars: tuple[int, ...] = ()
    #: Those of ``inputs`` that may be lazy conjugates or negatives, which nothing guards.
    lazy: tuple[int, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """All registers that the step may read."""
        return (*self.inputs, *self.scalars)


@dataclass(frozen=True)
class Program:
    """A TORCH program of a plan. ``dynamic``: it has dynamic sizes. ``device``: "cpu" or "cuda".

    ``bound``: inputs that are bound, by position, ascending; their values are prepared by the kernel.
    """

    text: bytes
    dynamic: bool
    device: str = "cpu"
    bound: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What runs for a graph with ``inputs`` arguments. ``outputs`` may be registers, scalars and ``None``."""

    inputs: int
    constants: tuple[Any, ...]
    steps: tuple[OperatorStep | KernelStep, ...]
    outputs: tuple[Any, ...]
    programs: tuple[Program, ...]

    @property
    def bound(self) -> int:
        """Inputs of programs that are bound."""
        return sum(len(program.bound) for program in self.programs)


def is_slice(value: Any) -> bool:
    """Whether an argument is a slice."""
    return isinstance(value, slice)


def registers_in(value: Any) -> Iterator[int]:
    """Numbers of the registers in an argument, nested as it is."""
    if isinstance(value, Register):
        yield value.index
    elif isinstance(value, (list, tuple)):
        for element in cast("Sequence[Any]", value):
            yield from registers_in(element)
    elif is_slice(value):
        yield from registers_in((value.start, value.stop, value.step))


# Execution.


def executable(plan: Plan, kernels: Sequence[Callable[..., Sequence[Any]]]) -> Callable[..., Any]:
    """A function of the list of arguments, which it empties, that returns the list of outputs.

    ``kernels[i]`` computes ``plan.programs[i]`` from a list of row-major tensors, and raises ``Exception``
    where its step's fallback has to run. If inputs of the program are bound it takes the other inputs, the
    bound ones as they are, and a function that makes a list of the latter row-major.
    """
    return _Writer(plan, kernels).function()


class _Writer:
    """Writes Python source that contains nothing of the plan but numbers; values are globals of it."""

    def __init__(self, plan: Plan, kernels: Sequence[Callable[..., Any]]) -> None:
        self._plan = plan
        self._globals: dict[str, Any] = {"failed": _failed}
        self._kernels = kernels
        self._lines: list[str] = []
        self._last = _last_uses(plan)

    def function(self) -> Callable[..., Any]:
        plan = self._plan
        names = ", ".join(f"v{index}" for index in range(plan.inputs))
        if names:
            self._lines.append(f"{names}, = args")
        self._lines.append("args.clear()")
        for index, constant in enumerate(plan.constants):
            self._lines.append(f"v{plan.inputs + index} = {self._constant(constant)}")
        for position, step in enumerate(plan.steps):
            if isinstance(step, OperatorStep):
                self._operator(step)
            else:
                self._kernel(step)
            unused = self._last.get(position, ())
            if unused:
                self._lines.append("del " + ", ".join(f"v{index}" for index in unused))
        self._lines.append(f"return [{', '.join(map(self._value, plan.outputs))}]")
        body = "\n    ".join(self._lines)
        code = compile(f"def run(args):\n    {body}\n", "<kcache plan>", "exec")
        exec(code, self._globals)  # noqa: S102 - the source holds register numbers only
        return self._globals["run"]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._globals)}"
        self._globals[name] = value
        return name

    def _value(self, value: Any) -> str:
        if isinstance(value, Register):
            return f"v{value.index}"
        if not any(True for _ in registers_in(value)):
            return self._constant(value)
        if is_slice(value):
            return f"slice({self._value(value.start)}, {self._value(value.stop)}, {self._value(value.step)})"
        elements = "".join(f"{self._value(element)}, " for element in value)
        return f"[{elements}]" if isinstance(value, list) else f"({elements})"

    def _operator(self, step: OperatorStep) -> None:
        names = [self._value(value) for value in step.args]
        keywords = [f"{name}={self._value(value)}" for name, value in step.kwargs.items()]
        target = self._constant(step.target)
        if step.target in UPDATES:
            # AOTAutograd counts the update of an input itself: ``.data`` has its own version.
            updated = names[0]
            self._lines.append(f"{target}({', '.join([f'{updated}.data', *names[1:], *keywords])})")
            self._lines.append(f"v{step.result} = {updated}")
            return
        self._lines.append(f"v{step.result} = {target}({', '.join([*names, *keywords])})")

    def _kernel(self, step: KernelStep) -> None:
        """Append the lines that call a kernel, with its operators of PyTorch as the fallback."""
        run = self._constant(self._kernels[step.kernel])
        bound = self._plan.programs[step.kernel].bound
        inputs = [
            self._as_row_major(self._resolved(index, step), layout)
            for position, (index, layout) in enumerate(zip(step.inputs, step.input_layouts, strict=True))
            if position not in bound
        ]
        passed = [f"[{', '.join(inputs)}]"]
        if bound:
            weights = ", ".join(f"v{step.inputs[position]}" for position in bound)
            layouts = [step.input_layouts[position] for position in bound]
            passed += [f"[{weights}]", self._constant(_row_major(layouts))]
        results = "".join(f"v{index}, " for index in step.results)
        arguments = "".join(f"v{index}, " for index in step.reads)
        restored = [
            f"v{index} = v{index}.permute({self._constant(layout.inverse)})"
            for index, layout in zip(step.results, step.result_layouts, strict=True)
            if isinstance(layout, Layout)
        ]
        fallback = self._constant(_operators(step))
        self._lines += [
            "try:",
            f"    {results}= {run}({', '.join(passed)})",
            *(f"    {line}" for line in restored),
            "except Exception as error:",
            f"    failed({run}, error)",
            f"    {results}= {fallback}([{arguments}])",
        ]

    def _resolved(self, index: int, step: KernelStep) -> str:
        return f"v{index}.resolve_conj().resolve_neg()" if index in step.lazy else f"v{index}"

    def _as_row_major(self, name: str, layout: LayoutLike) -> str:
        if isinstance(layout, Layout):
            return f"{name}.permute({self._constant(layout.order)}).contiguous()"
        return f"{name}.contiguous()" if layout == "copy" else name


def _row_major(layouts: Sequence[LayoutLike]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that makes tensors of these layouts row-major, and detaches them."""

    def convert(tensors: Sequence[Any]) -> list[Any]:
        pairs = zip(tensors, layouts, strict=True)
        return [
            (tensor.permute(layout.order) if isinstance(layout, Layout) else tensor).detach().contiguous()
            for tensor, layout in pairs
        ]

    return convert


def _failed(kernel: Any, error: Exception) -> None:
    """Tell a kernel that its call failed, where it wants to know."""
    report = getattr(kernel, "failed", None)
    if report is None:
        raise error
    report(error)


def _operators(step: KernelStep) -> Callable[[list[Any]], list[Any]]:
    """The fallback of a kernel step, compiled when it is first called."""
    compiled: list[Callable[..., Any]] = []

    def run(inputs: list[Any]) -> list[Any]:
        if not compiled:
            compiled.append(executable(_fallback_plan(step), ()))
        return compiled[0](inputs)

    return run


def _fallback_plan(step: KernelStep) -> Plan:
    numbers = {register: index for index, register in enumerate(step.reads)}
    steps: list[OperatorStep] = []
    for operation in step.fallback:
        args = cast("tuple[Any, ...]", _renumbered(operation.args, numbers))
        kwargs = {name: _renumbered(value, numbers) for name, value in operation.kwargs.items()}
        result = numbers.setdefault(operation.result, len(numbers))
        steps.append(OperatorStep(operation.target, args, kwargs, result))
    outputs = tuple(Register(numbers[index]) for index in step.results)
    return Plan(len(step.reads), (), tuple(steps), outputs, ())


def _renumbered(value: Any, numbers: Mapping[int, int]) -> Any:
    if isinstance(value, Register):
        return Register(numbers[value.index])
    if isinstance(value, (list, tuple)):
        elements = [_renumbered(element, numbers) for element in cast("Sequence[Any]", value)]
        return elements if isinstance(value, list) else tuple(elements)
    if is_slice(value):
        return slice(*(_renumbered(part, numbers) for part in (value.start, value.stop, value.step)))
    return value


def _last_uses(plan: Plan) -> dict[int, list[int]]:
    """Step -> registers that nothing reads after it, inputs included."""
    last: dict[int, int] = {}
    for position, step in enumerate(plan.steps):
        if isinstance(step, OperatorStep):
            read = registers_in((step.args, tuple(step.kwargs.values())))
            last.setdefault(step.result, position)
        else:
            read = iter(step.reads)
            for index in step.results:
                last.setdefault(index, position)
        for index in read:
            last[index] = position
    for index in registers_in(plan.outputs):
        last.pop(index, None)
    unused: dict[int, list[int]] = {}
    for index, position in last.items():
        unused.setdefault(position, []).append(index)
    return unused


# JSON.


def encode_plan(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values, without the text of its programs. Raises ``PlanError`` where it has none."""
    if plan.constants:
        raise PlanError("the graph has tensor constants")
    return {
        "version": VERSION,
        "inputs": plan.inputs,
        "steps": [_encode_step(step) for step in plan.steps],
        "outputs": [_encode(value) for value in plan.outputs],
    }


def _encode_step(step: OperatorStep | KernelStep) -> list[Any]:
    if isinstance(step, OperatorStep):
        kwargs = {name: _encode(value) for name, value in step.kwargs.items()}
        return ["operator", target_name(step.target), _encode(step.args), kwargs, step.result]
    return [
        *("kernel", step.kernel),
        *(step.inputs, [_encode_layout(layout) for layout in step.input_layouts]),
        *(step.results, [_encode_layout(layout) for layout in step.result_layouts]),
        [_encode_step(operation) for operation in step.fallback],
        *(step.scalars, step.lazy),
    ]


def _encode_layout(layout: LayoutLike) -> Any:
    return list(layout.order) if isinstance(layout, Layout) else layout


def target_name(target: Callable[..., Any]) -> str:
    """The name of a step's target. Raises ``PlanError`` where another process might not have it."""
    overload: Any = target
    if isinstance(overload, torch._ops.OpOverload):
        if overload.namespace not in _NAMESPACES:
            raise PlanError(f"{target} is a custom operator")
        if not _may_be_named(overload):
            raise PlanError(f"{target} has other effects than its results")
        return str(target)
    name = getattr(target, "__name__", "")
    if _PYTHON.get(name) is target:
        return f"operator.{name}"
    if name in _SYMBOLIC and getattr(torch, name) is target:
        return f"torch.{name}"
    if name in _MATH and getattr(math, name) is target:
        return f"math.{name}"
    raise PlanError(f"{name or target} cannot be named in another process")


def _encode(value: Any) -> Any:
    if isinstance(value, Register):
        return {"register": value.index}
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if type(value) is float:
        return {"float": value.hex()}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if is_slice(value):
        return {"slice": [_encode(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, (list, tuple)):
        elements = [_encode(element) for element in cast("Sequence[Any]", value)]
        return {"tuple": elements} if isinstance(value, tuple) else elements
    raise PlanError(f"an argument is a {type(value).__name__}")


def decode_plan(data: Any, programs: Sequence[Program]) -> Plan:
    """The plan of JSON values. Raises ``PlanError`` for anything else, and for forbidden targets."""
    try:
        if data["version"] != VERSION:
            raise PlanError(f"version {data['version']} of plans")
        steps = tuple(_decode_step(step, programs) for step in data["steps"])
        inputs = _index(data["inputs"])
        if inputs > _MOST_INPUTS:
            raise PlanError(f"a plan with {inputs} inputs")
        plan = Plan(inputs, (), steps, tuple(map(_decode, data["outputs"])), tuple(programs))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise PlanError(f"not a plan: {type(error).__name__}: {error}") from error
    _require_defined(plan)
    return plan


def _decode_step(data: Any, programs: Sequence[Program]) -> OperatorStep | KernelStep:
    """Return the step that JSON data describe. Raises ``PlanError`` for invalid data."""
    if data[0] == "operator":
        _, name, args, kwargs, result = data
        decoded = {str(key): _decode(value) for key, value in kwargs.items()}
        if any(not key.isidentifier() or iskeyword(key) for key in decoded):
            raise PlanError("a keyword is no identifier")
        return OperatorStep(_target(name), _positional(args), decoded, _index(result))
    _, kernel, inputs, input_layouts, results, result_layouts, fallback, scalars, lazy = data
    if data[0] != "kernel" or not 0 <= _index(kernel) < len(programs):
        raise PlanError(f"no step: {data[0]!r}")
    if len(inputs) != len(input_layouts) or len(results) != len(result_layouts):
        raise PlanError("a kernel's tensors and their layouts differ in number")
    program = programs[_index(kernel)]
    if program.bound and program.bound[-1] >= len(inputs):
        raise PlanError("a bound input of a program that its step does not have")
    operations = tuple(_decode_step(operation, ()) for operation in fallback)
    return KernelStep(
        kernel,
        tuple(map(_index, inputs)),
        tuple(map(_decode_layout, input_layouts)),
        tuple(map(_index, results)),
        tuple(map(_decode_layout, result_layouts)),
        cast("tuple[OperatorStep, ...]", operations),
        tuple(map(_index, scalars)),
        tuple(map(_index, lazy)),
    )


def _positional(data: Any) -> tuple[Any, ...]:
    args = _decode(data)
    if not isinstance(args, tuple):
        raise PlanError("the arguments of an operator are no tuple")
    return cast("tuple[Any, ...]", args)


def _index(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise PlanError(f"{value!r} is no register")
    return value


def _decode_layout(data: Any) -> LayoutLike:
    if data is None or data == "copy":
        return data
    if sorted(data) != list(range(len(data))):
        raise PlanError(f"{data!r} is no permutation")
    return Layout(tuple(data))


def _target(name: str) -> Callable[..., Any]:
    module, _, rest = name.partition(".")
    if module == "operator" and rest in _PYTHON:
        return _PYTHON[rest]
    if module == "torch" and rest in _SYMBOLIC:
        return getattr(torch, rest)
    if module == "math" and rest in _MATH:
        return getattr(math, rest)
    packet, _, overload = rest.partition(".")
    if module not in _NAMESPACES or not packet.isidentifier() or not overload.isidentifier():
        raise PlanError(f"{name} is no target of a plan")
    if module == RECURRENT:
        import_module("kcache_grpc.programs.torch.recurrent").operators()
    target = getattr(getattr(getattr(torch.ops, module), packet), overload)
    if not isinstance(target, torch._ops.OpOverload):
        raise PlanError(f"{name} is no target of a plan")
    if not _may_be_named(target):
        raise PlanError(f"{name} is no target of a plan")
    return target


def _may_be_named(overload: Any) -> bool:
    """Whether a plan may name an operator: one that writes no tensor, updates excepted, and uses no file."""
    mutates = overload._schema.is_mutable and overload not in UPDATES
    return not mutates and overload._schema.name not in _FORBIDDEN


def _decode(data: Any) -> Any:
    if isinstance(data, list):
        return [_decode(element) for element in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    [(kind, value)] = cast("dict[str, Any]", data).items()
    if kind == "register":
        return Register(_index(value))
    if kind == "float":
        return float.fromhex(value)
    if kind == "torch":
        return _DTYPES[value]
    if kind == "device":
        return torch.device(value)
    if kind == "slice":
        return slice(*map(_decode, value))
    if kind == "tuple":
        return tuple(_decode(element) for element in value)
    raise PlanError(f"{kind!r} is no kind of value")


def _require_defined(plan: Plan) -> None:
    """Raise ``PlanError`` where a register is read before it is written."""
    defined = set(range(plan.inputs + len(plan.constants)))
    for step in plan.steps:
        if isinstance(step, OperatorStep):
            read, written = registers_in((step.args, tuple(step.kwargs.values()))), (step.result,)
        else:
            read, written = iter(step.reads), step.results
            inside = set(step.reads)
            for operation in step.fallback:
                if not inside.issuperset(registers_in((operation.args, tuple(operation.kwargs.values())))):
                    raise PlanError("a fallback reads a register that its step does not have")
                inside.add(operation.result)
            if not inside.issuperset(step.results):
                raise PlanError("a fallback does not compute the results of its step")
        if not defined.issuperset(read):
            raise PlanError("a register is read before it is written")
        defined.update(written)
    if not defined.issuperset(registers_in(plan.outputs)):
        raise PlanError("an output is not computed")
