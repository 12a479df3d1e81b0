"""Canonical text of the inputs of a graph of Dynamo: tensors, symbolic and other scalars.

The text of symbolic sizes has all that the shape environment knows of them.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.digest.source_values import NotDigestible

torch: Any = import_module("torch")
sympy: Any = import_module("sympy")
_kinds: Any = import_module("torch.utils._sympy.symbol")

#: Operators whose operands have no order.
_COMMUTATIVE: Any = (sympy.Add, sympy.Mul, sympy.And, sympy.Or, sympy.Equality, sympy.Unequality)
_KINDS = {torch.Tensor: "tensor", torch.nn.Parameter: "parameter"}
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
#: Constants of more bytes have no digest: they are inputs in all but name.
_MOST_CONSTANT_BYTES = 1 << 16
_keys = torch._C._dispatch_keys
_strided = torch.strided


class Symbols:
    """Symbols renamed in the order of their first appearance, and the facts about them."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._renamed: dict[Any, str] = {}
        self._texts: dict[Any, str] = {}

    def text(self, value: Any) -> str:
        """The expression of a ``SymInt``, ``SymFloat`` or ``SymBool``, or an integer. Adds no guard."""
        if value.__class__ is int:
            return str(value)
        node = value.node
        environment = getattr(node, "shape_env", None)
        if environment is None or node.is_nested_int():
            raise NotDigestible("a symbolic value without a shape environment")
        if self._environment is None:
            self._environment = environment
        if environment is not self._environment:
            raise NotDigestible("symbolic sizes of two shape environments")
        return f"{value.__class__.__name__} {self._expression(node._expr)}"

    def facts(self) -> list[str]:
        """Lines with the settings, guards, ranges and other facts that tracing may read.

        Values that symbols have in this call are left out: code that depends on them has guards.
        """
        environment = self._environment
        if environment is None:
            return ["shape environment: none"]
        settings = dataclasses.asdict(environment.settings)
        lines = [f"shape environment: {sorted(settings.items())} {environment.runtime_asserts_frozen}"]
        lines += sorted({f"guard {self._expression(guard.expr)}" for guard in environment.guards})
        lines += sorted(f"divisible {self._expression(expression)}" for expression in environment.divisible)
        asserts = [fact for facts in environment.deferred_runtime_asserts.values() for fact in facts]
        lines += sorted(f"assert {self._expression(fact.expr)}" for fact in asserts)
        described = 0
        while described < len(self._renamed):
            for symbol in list(self._renamed)[described:]:
                lines.append(self._symbol(symbol))
                described += 1
        return lines

    def _symbol(self, symbol: Any) -> str:
        """The range, the replacement and the assumptions of one symbol."""
        environment = self._environment
        bounds = environment.var_to_range.get(symbol)
        replacement = environment.replacements.get(symbol)
        self._check_kind(symbol)
        parts = [
            f"symbol {self._renamed[symbol]}",
            "" if bounds is None else f"{bounds.lower}..{bounds.upper}",
            "" if replacement is None else self._expression(replacement),
            str(symbol in environment.size_like),
        ]
        return " ; ".join(parts)

    def _check_kind(self, symbol: Any) -> None:
        if not _kinds.symbol_is_type(symbol, (_kinds.SymT.SIZE, _kinds.SymT.FLOAT)):
            raise NotDigestible("a symbol that depends on data")

    def _expression(self, expression: Any) -> str:
        text = self._texts.get(expression)
        if text is None:
            text = self._texts[expression] = self._canonical(expression)
        return text

    def _canonical(self, expression: Any) -> str:
        """The tree of an expression in renamed symbols; SymPy orders operands by the symbols' own names."""
        if isinstance(expression, (bool, int, float)):
            return repr(expression)
        kind: Any = expression.__class__
        if issubclass(kind, sympy.Symbol):
            return self._name(expression)
        operands: list[Any] = list(expression.args)
        if not operands:
            return sympy.srepr(expression)
        texts = [self._expression(operand) for operand in operands]
        if issubclass(kind, _COMMUTATIVE):
            texts.sort()
        return f"{kind.__module__}.{kind.__qualname__}({','.join(texts)})"

    def _name(self, symbol: Any) -> str:
        known = self._renamed.get(symbol)
        if known is None:
            assumptions = sorted(f"{name}={holds}" for name, holds in symbol._assumptions_orig.items())
            known = self._renamed[symbol] = f"k{len(self._renamed)}:{'+'.join(assumptions)}"
        return known


class Inputs:
    """Texts of inputs, which number tensors and their storage in the order of their first appearance."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._objects: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._devices: dict[Any, str] = {}
        self._fake: Any = import_module("torch._subclasses.fake_tensor").FakeTensor

    def text(self, value: Any, traced: Any) -> str:
        """The text of an input; ``traced`` is the value with symbolic sizes that Dynamo traced, if any."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value, traced if isinstance(traced, self._fake) else None)
        if isinstance(value, _SYMBOLIC):
            return self._symbols.text(value)
        if value is None or type(value) in (bool, int):
            return f"{type(value).__name__} {value}"
        if type(value) is float:
            return f"float {value.hex()}"
        kind: Any = value.__class__
        raise NotDigestible(f"an input of type {kind.__module__}.{kind.__qualname__}")

    def tensor(self, tensor: Any, traced: Any) -> str:
        """Class, dtype, device, sizes, strides, flags and storage of a dense tensor."""
        kind = self._kind(tensor)
        if tensor.layout is not _strided or tensor.is_quantized:
            raise NotDigestible("an input that is sparse, quantized or of another layout")
        sizes = tensor if traced is None else traced
        if sizes.dim() != tensor.dim():
            raise NotDigestible("an input whose traced sizes have another rank")
        number = self._objects.setdefault(id(tensor), len(self._objects))
        storage = tensor.untyped_storage()
        group = self._storages.setdefault(storage._cdata, len(self._storages))
        flags = (
            tensor.requires_grad,
            tensor.is_leaf,
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.is_inference(),
        )
        text = (
            f"{kind} {tensor.dtype} {self._device(tensor.device)} {self._layout(sizes)} {flags} "
            f"{_keys(tensor).raw_repr()} #{number} in {group}"
        )
        if storage.nbytes() == 0 and tensor.numel():
            text += " without storage"
        if traced is not None:
            text += f" traced {traced.dtype} {traced.requires_grad} {traced.is_leaf}"
        return text + (self._view(tensor, traced) if tensor._is_view() else "")

    def constant(self, tensor: Any) -> str:
        """The metadata and the elements of a constant in the graph."""
        if isinstance(tensor, self._fake) or tensor.device.type != "cpu":
            raise NotDigestible("a constant whose elements are not in host memory")
        text = self.tensor(tensor, None)
        if tensor.numel() * tensor.element_size() > _MOST_CONSTANT_BYTES:
            raise NotDigestible(f"a constant of more than {_MOST_CONSTANT_BYTES} bytes in the graph")
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return f"{text} {plain.view(torch.uint8).numpy().tobytes().hex()}"

    def _kind(self, tensor: Any) -> str:
        kind = _KINDS.get(tensor.__class__)
        if kind is not None:
            return kind
        if tensor.__class__ is self._fake:
            return "parameter" if isinstance(tensor, torch.nn.Parameter) else "tensor"
        name: Any = tensor.__class__
        raise NotDigestible(f"an input of the tensor subclass {name.__module__}.{name.__qualname__}")

    def _layout(self, tensor: Any) -> str:
        """Sizes, strides and storage offset, with symbols where they are symbolic."""
        text = self._symbols.text
        sizes, strides = ",".join(map(text, tensor.shape)), ",".join(map(text, tensor.stride()))
        return f"({sizes}) ({strides}) {text(tensor.storage_offset())}"

    def _view(self, tensor: Any, traced: Any) -> str:
        """The base of a view: autograd and mutations of the view reach it."""
        base = (tensor if traced is None else traced)._base
        if base is None:
            raise NotDigestible("an input that is a view, traced without its base")
        own = tensor._base
        creation = torch._C._autograd._get_creation_meta(tensor)
        return (
            f" view of {own.dtype} {self._layout(base)} {own.requires_grad} {own.is_leaf} "
            f"{self._kind(own)} {_keys(own).raw_repr()} {creation}"
        )

    def _device(self, device: Any) -> str:
        text = self._devices.get(device)
        if text is None:
            text = self._devices[device] = _device_text(device)
        return text


def _device_text(device: Any) -> str:
    """The device, with the model of a GPU: operators choose their implementation by it."""
    if device.type != "cuda":
        return str(device)
    properties = torch.cuda.get_device_properties(device)
    return (
        f"{device} {properties.name} {properties.major}.{properties.minor} {torch.backends.cudnn.version()}"
    )
