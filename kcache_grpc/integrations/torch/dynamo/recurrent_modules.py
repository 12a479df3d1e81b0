"""Lets Dynamo trace ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` for this backend, where kernels may compute them.

Dynamo breaks the graph at these modules unless ``torch._dynamo.config.allow_rnn`` is set, which would change
other backends too. The setting is patched only while Dynamo wraps such a module in a graph of this backend.
Fake results of their functions are computed in layers, where PyTorch would trace the operations of all steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.collector import is_wrapper_of

torch: Any = import_module("torch")

_DTYPES = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
#: Those of modules with gradients.
_GRADIENT_DTYPES = frozenset((torch.float32, torch.float64))

_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def trace_recurrent_modules(backend: Callable[..., Any]) -> None:
    """Patch Dynamo, for graphs of ``backend``; a PyTorch with other private functions stays as it is."""
    try:
        builder: Any = import_module("torch._dynamo.variables.builder").VariableBuilder
        variable: Any = import_module("torch._dynamo.variables.torch").TorchInGraphFunctionVariable
        wrap, handlers = builder.wrap_module, variable._get_handlers()
        config: Any = torch._dynamo.config
        _ = config.allow_rnn
    except (ImportError, AttributeError):
        return

    @functools.wraps(wrap)
    def wrap_module(self: Any, value: Any) -> Any:
        if not isinstance(value, torch.nn.RNNBase) or not _is_of(self.tx, backend) or not is_traceable(value):
            return wrap(self, value)
        with config.patch(allow_rnn=True):
            return wrap(self, value)

    builder.wrap_module = wrap_module
    for name in _FUNCTIONS:
        handlers.setdefault(getattr(torch, name), functools.partial(_traced_call, backend, name))


def _traced_call(
    backend: Callable[..., Any], name: str, variable: Any, tx: Any, *args: Any, **kwargs: Any
) -> Any:
    """The results of a recurrent function, as Dynamo's variables; ``None`` for Dynamo to trace it.

    Breaks the graph in a module whose layers are no operators, as Dynamo does for other backends: it would
    trace the operations of all steps.
    """
    if not _is_of(tx, backend):
        return None
    recurrent: Any = import_module("kcache_grpc.programs.torch.recurrent")
    utils: Any = import_module("torch._dynamo.utils")
    positional, named = utils.proxy_args_kwargs(args, kwargs)
    try:
        fakes = torch.fx.node.map_aggregate(positional, _example)
    except KeyError:  # an argument without a fake value
        return None
    if named or not recurrent.is_layered(name, fakes):
        if _is_in_module(tx) and not _is_packed(fakes):
            raise torch._dynamo.exc.Unsupported(f"kcache leaves {name} with these arguments to PyTorch")
        return None
    with tx.fake_mode:
        results = getattr(recurrent, name)(*fakes)
    proxy = tx.output.create_proxy("call_function", variable.value, positional, {})
    return import_module("torch._dynamo.variables.builder").wrap_fx_proxy(tx, proxy, example_value=results)


def _is_in_module(tx: Any) -> bool:
    """Whether Dynamo traces ``forward`` of a recurrent module."""
    return tx.f_code.co_filename == torch.nn.LSTM.forward.__code__.co_filename


def _example(value: Any) -> Any:
    """The fake tensor or the size that a proxy stands for."""
    return value.node.meta["example_value"] if isinstance(value, torch.fx.Proxy) else value


def is_traceable(module: Any) -> bool:
    """Whether kernels may compute a module: autocast and other devices are left to PyTorch.

    With gradients half precision and projections, too.
    """
    weights = list(module.parameters())
    has_gradients = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
    if torch.is_autocast_enabled("cpu") or (has_gradients and module.proj_size):
        return False
    dtypes = {weight.dtype for weight in weights}
    allowed = _GRADIENT_DTYPES if has_gradients else _DTYPES
    return len(dtypes) == 1 and dtypes <= allowed and all(weight.device.type == "cpu" for weight in weights)


def _is_of(tx: Any, backend: Callable[..., Any]) -> bool:
    """Whether the graph that Dynamo traces is compiled by ``backend``."""
    return is_wrapper_of(getattr(getattr(tx, "output", None), "compiler_fn", None), backend)


def has_packed_sequences(graph: Any) -> bool:
    """Whether a graph of Dynamo calls a recurrent function with a packed sequence."""
    functions = [getattr(torch, name) for name in _FUNCTIONS]
    return any(
        node.op == "call_function" and node.target in functions and _is_packed(node.args)
        for node in graph.nodes
    )


def _is_packed(args: Any) -> bool:
    """Whether the second argument is the batch sizes: the fourth argument is then the weights."""
    return len(args) > 3 and isinstance(args[3], (list, tuple))
