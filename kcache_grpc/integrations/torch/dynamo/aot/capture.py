"""Compilation of a Dynamo graph with AOTAutograd that also returns the metadata of its runtime wrappers.

AOTAutograd collects this metadata (a ``GenericAOTAutogradResult``) for its own cache, which pickles it. Here
the stages of ``aot_module_simplified`` run with a cache key whose serialization is rejected, so that the
entry exists in memory and nothing is pickled or written. ``aot_record`` encodes the entry as JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, cast

from kcache_grpc.integrations.torch.dynamo.aot.fake_tensors import detached, fakes_of
from kcache_grpc.integrations.torch.dynamo.aot.single_trace import (
    Expected,
    NotFunctional,
    check_inputs,
    check_operators,
    checked,
    expected_of,
)

torch: Any = import_module("torch")
log = logging.getLogger("kcache")

#: Compiles an FX graph for example inputs; the result takes a list of arguments (boxed) or the arguments.
GraphCompiler = Callable[[Any, Sequence[Any]], Callable[..., Any]]
Compiled = Callable[..., Any]


class FirstCall(NamedTuple):
    """What the first call of a graph does, besides.

    ``begin`` is called before it, and again where it raised. A function of positional arguments that it
    returns takes the place of the graph. ``end`` is called after it, even if the graph raised.
    """

    begin: Callable[[], Compiled | None]
    end: Callable[[], None]


_GRAPH_CAPTURE = "torch._functorch._aot_autograd.graph_compile:aot_stage1_graph_capture"
_SUBCLASS_META = "torch._functorch._aot_autograd.subclass_utils:create_subclass_meta"
#: The private functions of PyTorch that the capture calls, with the parameters that it passes by name.
_PRIVATE = {
    "torch._functorch.aot_autograd:prepare_aot_module_simplified": (
        "flatten",
        "force_non_lazy_backward_lowering",
    ),
    "torch._functorch.aot_autograd:create_aot_state": ("stack", "aot_config", "fake_mode", "shape_env"),
    _GRAPH_CAPTURE: ("aot_state",),
    _SUBCLASS_META: ("curr_args",),
    "torch._functorch._aot_autograd.graph_compile:aot_stage2_compile": ("fw_compiler", "inference_compiler"),
    "torch._functorch._aot_autograd.autograd_cache:AOTAutogradCache": (),
    "torch._functorch._aot_autograd.autograd_cache:BypassAOTAutogradCache": (),
    "torch._functorch._aot_autograd.schemas:AOTConfig": ("_disable_torch_fn_metadata_mode",),
    "torch._functorch._aot_autograd.schemas:AOTAutogradCacheInfo": ("cache_key", "forward_symints"),
    "torch._functorch._aot_autograd.runtime_wrappers:SerializableCompiledFunction": ("serialize_fn",),
    "torch._functorch._aot_autograd.utils:make_boxed_func": (),
    "torch.fx.experimental.symbolic_shapes:PropagateUnbackedSymInts": (),
    "torch.fx.experimental.proxy_tensor:_ProxyTensor": ("proxy", "constant"),
    "torch.fx.experimental.proxy_tensor:disable_proxy_modes_tracing": (),
    "torch.fx.experimental.proxy_tensor:get_proxy_mode": (),
    "torch.fx.experimental.proxy_tensor:get_proxy_slot": ("obj", "tracer", "default"),
    "torch.fx.experimental.proxy_tensor:set_proxy_slot": ("obj", "tracer", "proxy"),
    "torch._subclasses.fake_tensor:in_kernel_invocation_manager": ("fake_mode",),
    "torch._dynamo.compiled_autograd:_disable": (),
    "torch._dynamo.config:caching_precompile": (),
}


class _Key:
    """A cache key that AOTAutograd accepts and that no pickler takes: the entry stays in memory."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise _private("torch._functorch._aot_autograd.autograd_cache:BypassAOTAutogradCache")(
            "kcache keeps the entry itself"
        )


def compile_with_aot(
    gm: Any,
    example_inputs: Sequence[Any],
    *,
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler,
    inference_compiler: GraphCompiler,
    partition_fn: Callable[..., Any],
    decompositions: Mapping[Any, Callable[..., Any]],
    keep_inference_input_mutations: bool = False,
    report: Callable[[str], None] | None = None,
    first_call: FirstCall | None = None,
) -> tuple[Compiled, Any | None]:
    """Compiles a Dynamo graph as ``aot_module_simplified`` does, and returns AOTAutograd's entry too.

    The backward is compiled at once, not at its first call. The callable takes the inputs of the graph as
    positional arguments. The entry, a ``GenericAOTAutogradResult``, is ``None`` where the compilation
    depends on facts that no record states (guards on aliased or duplicate inputs) or where this PyTorch has
    other private functions; ``report`` is then called with the reason. ``first_call``: see ``callable_of``.
    """
    compilers = {
        "fw_compiler": fw_compiler,
        "bw_compiler": bw_compiler,
        "inference_compiler": inference_compiler,
        "partition_fn": partition_fn,
    }
    reason = _cannot_capture(example_inputs)
    if reason is None:
        compiled, constants, entry = _Capture(compilers, report or _ignore).run(
            gm, example_inputs, dict(decompositions), keep_inference_input_mutations
        )
        return callable_of(compiled, constants, first_call), entry
    if report is not None:
        report(reason)
    compile_plain = _private("torch._dynamo.backends.common:aot_autograd")(
        **compilers,
        decompositions=dict(decompositions),
        keep_inference_input_mutations=keep_inference_input_mutations,
    )
    return callable_of(_of_list(compile_plain(gm, example_inputs)), (), first_call), None


class _Capture:
    """One compilation: its compilers and why its entry is not kept, if it is not."""

    def __init__(self, compilers: Mapping[str, Any], report: Callable[[str], None]) -> None:
        self._compilers = compilers
        self._report = report
        self._rejection: str | None = None
        self._guards = _ShapeGuards()

    def run(
        self, gm: Any, example_inputs: Sequence[Any], decompositions: dict[Any, Any], keep_mutations: bool
    ) -> tuple[Compiled, list[Any], Any | None]:
        """The boxed callable, the parameters and buffers that are its first arguments, and the entry."""
        counters = _private("torch._dynamo.utils:counters")
        guards = _alias_guards()
        counters["aot_autograd"]["total"] += 1
        try:
            with _own_entry():
                compiled, constants = self._stages(gm, example_inputs, decompositions, keep_mutations)
        except _private("torch._dynamo.exc:TensorifyScalarRestartAnalysis"):
            raise
        except Exception:
            counters["aot_autograd"]["not_ok"] += 1
            raise
        counters["aot_autograd"]["ok"] += 1
        entry = _entry_of(compiled)
        if _alias_guards() != guards or (entry is not None and _merges_inputs(entry)):
            self._rejection = "the graph mutates duplicate or overlapping inputs"
        if self._guards.lost():
            self._rejection = "tracing added guards on symbols that are no inputs of the graph"
        if entry is None or self._rejection is not None:
            self._report(self._rejection or "AOTAutograd kept no entry")
            entry = None
        return compiled, constants, entry

    def _stages(
        self, gm: Any, example_inputs: Sequence[Any], decompositions: dict[Any, Any], keep_mutations: bool
    ) -> tuple[Compiled, list[Any]]:
        """The body of ``aot_module_simplified`` without its cache and its options."""
        expected, inputs = _expected_of(gm, example_inputs)
        with contextlib.ExitStack() as stack:
            (
                functional_call,
                constants,
                _params,
                _buffers,
                fake_args,
                descriptors,
                aot_config,
                fake_mode,
                shape_env,
                _in_spec,
                _out_spec,
                async_inputs,
            ) = _private("torch._functorch.aot_autograd:prepare_aot_module_simplified")(
                gm,
                inputs,
                None,
                decompositions,
                keep_mutations,
                False,
                flatten=False,
                force_non_lazy_backward_lowering=True,
            )
            if inputs is not example_inputs:
                aot_config = dataclasses.replace(aot_config, dynamic_shapes=False)  # as of real tensors
            aot_config = _with_key(aot_config, fake_args)
            self._guards = _ShapeGuards(shape_env, aot_config.cache_info.forward_symints)
            stack.enter_context(torch._dynamo.compiled_autograd._disable())

            def state_of(
                function: Compiled, contexts: contextlib.ExitStack, positions: Sequence[int] | None = None
            ) -> Any:
                chosen = range(len(fake_args)) if positions is None else positions
                values, own = [fake_args[index] for index in chosen], [descriptors[index] for index in chosen]
                state = _private("torch._functorch.aot_autograd:create_aot_state")(
                    contexts, function, values, own, aot_config, fake_mode, shape_env
                )
                state.flat_args_descs = descriptors
                _set_async_inputs(state.fw_metadata, async_inputs)
                return state

            try:
                if isinstance(expected, NotFunctional):
                    raise expected
                check_inputs(fake_args)
                function = functional_call if expected.updates else _repeating(gm)
                with contextlib.ExitStack() as attempt:
                    state, graph = _trace_once(state_of, function, expected, fake_args, attempt)
                    stack.enter_context(attempt.pop_all())
            except NotFunctional as reason:
                log.debug("traced twice: %s", reason)
                state = state_of(functional_call, stack)
                graph = _private(_GRAPH_CAPTURE)(state, functional_call)
            _leave_out_text(graph.graph_module)
            compiled, _metadata = _private("torch._functorch._aot_autograd.graph_compile:aot_stage2_compile")(
                state,
                graph,
                self._compilers["partition_fn"],
                self._keyed(self._compilers["fw_compiler"]),
                self._backward,
                self._keyed(self._compilers["inference_compiler"]),
            )
        return compiled, constants

    def _keyed(self, compiler: GraphCompiler) -> GraphCompiler:
        def compile_keyed(graph: Any, inputs: Sequence[Any]) -> Compiled:
            graph.__dict__.pop("print_readable", None)
            return _boxed(compiler(graph, inputs), _Key())

        return compile_keyed

    def _backward(self, graph: Any, inputs: Sequence[Any]) -> Compiled:
        """Compiles the backward, which Dynamo traces neither now nor when it runs."""
        key: _Key | None = _Key()
        try:
            graph.__reduce__()
        except Exception as error:  # noqa: BLE001 - AOTAutograd would fail in the same way
            self._rejection = f"the backward graph has functions that no name denotes: {error}"
            key = None
        disable = torch._dynamo.disable
        compile_eagerly = disable(self._compilers["bw_compiler"], reason="do not trace the backward compiler")
        compiled = _boxed(compile_eagerly(graph, inputs), key)
        return disable(compiled, reason="do not trace generated backwards pass")


def _set_async_inputs(metadata: Any, inputs: list[Any]) -> None:
    """Which inputs are asynchronous collectives: indices, or paths in the field of PyTorch 2.14."""
    name = "act_input_paths" if hasattr(metadata, "act_input_paths") else "act_input_indices"
    setattr(metadata, name, inputs)


def _leave_out_text(graph_module: Any) -> None:
    """Let AOTAutograd keep no text of an inference graph in its entry: no record has it."""
    print_readable = graph_module.print_readable

    def print_for_logs(*args: Any, **options: Any) -> str:
        return "" if options.get("fast_sympy_print") else print_readable(*args, **options)

    graph_module.print_readable = print_for_logs


def _repeating(graph_module: Any) -> Compiled:
    # Imports private classes of PyTorch, which ``_missing`` has looked for.
    from kcache_grpc.integrations.torch.dynamo.aot.repeated_nodes import trace_repeating

    return trace_repeating(graph_module)


def _expected_of(gm: Any, inputs: Sequence[Any]) -> tuple[Expected | NotFunctional, Sequence[Any]]:
    """What is expected of a trace, or why nothing is, and the inputs: fake ones where they are that soon."""
    try:
        if next(gm.parameters(), None) is not None or next(gm.buffers(), None) is not None:
            raise NotFunctional("it holds parameters itself")
        expected = expected_of(gm)
    except NotFunctional as reason:
        return reason, inputs
    context = torch._guards.TracingContext.try_get()
    mode = None if context is None else context.fake_mode
    fakes: Any = import_module("torch._subclasses.fake_tensor")
    if mode is None or any(isinstance(value, fakes.FakeTensor) for value in inputs):
        return expected, inputs
    return expected, fakes_of(mode, inputs)


def _trace_once(
    state_of: Callable[..., Any],
    function: Compiled,
    expected: Expected,
    fake_args: Sequence[Any],
    contexts: contextlib.ExitStack,
) -> tuple[Any, Any]:
    """AOTAutograd's state and trace of a graph. Raises ``NotFunctional``, and then has changed nothing."""
    state = _state_once(state_of, expected, fake_args, contexts)
    config = state.aot_config
    # Operators of the trace that write metadata do so on copies.
    state.flat_args = list(map(detached, fake_args))
    if not expected.updates:
        # AOTAutograd keeps detached inputs as examples for the compiler, before it calls the function.
        for value, original in zip(state.flat_args, fake_args, strict=True):
            value.detach = functools.partial(_itself, original)
    state.aot_config = dataclasses.replace(
        config, disable_functionalization=not expected.updates, _disable_torch_fn_metadata_mode=True
    )
    graph = _private(_GRAPH_CAPTURE)(state, checked(function, expected, state.flat_args))
    check_operators(graph.graph_module.graph, updates=expected.updates)
    state.aot_config = config
    state.fw_metadata.mutated_inp_stream_indices = []  # as functionalization says
    return state, graph


def _state_once(
    state_of: Callable[..., Any], expected: Expected, fake_args: Sequence[Any], contexts: contextlib.ExitStack
) -> Any:
    """AOTAutograd's state: its metadata of inputs is made for one of each kind, as none is written."""
    kinds = [(value.requires_grad, value.is_leaf) for value in fake_args]
    firsts = list(dict.fromkeys(kinds))
    state = state_of(expected.empty_outputs, contexts, list(map(kinds.index, firsts)))
    infos = dict(zip(firsts, state.fw_metadata.input_info, strict=True))
    state.fw_metadata = dataclasses.replace(
        state.fw_metadata,
        input_info=[infos[kind] for kind in kinds],
        subclass_inp_meta=_private(_SUBCLASS_META)(fake_args),
    )
    return state


def _itself(value: Any) -> Any:
    return value


@contextlib.contextmanager
def _own_entry() -> Generator[None]:
    """Settings with which AOTAutograd makes an entry that holds no code and is not pickled."""
    functorch = torch._functorch.config.patch(
        strict_autograd_cache=False,
        bundled_autograd_cache=False,
        force_autograd_cache=False,
        bypass_autograd_cache_key=False,
    )
    with functorch, torch._dynamo.config.patch(caching_precompile=False):
        yield


class _ShapeGuards:
    """The guards of a shape environment that an entry's expression leaves out.

    AOTAutograd writes guards on the symbols that are inputs: guards on floats, and on symbols that tracing
    replaced by constants, are not among them.
    """

    def __init__(self, environment: Any = None, inputs: Sequence[Any] = ()) -> None:
        self._environment = environment
        self._inputs = inputs
        self._before = 0 if environment is None else len(environment.guards)

    def lost(self) -> bool:
        """Whether guards were added that are neither written nor follow from those that are."""
        if self._environment is None:
            return False
        written: set[Any] = set()
        for value in self._inputs:
            written |= {value.node.expr} & value.node.expr.free_symbols
        added = [guard.expr for guard in self._environment.guards[self._before :]]
        return any(
            not expression.free_symbols <= written
            and expression.xreplace(self._environment.replacements) != True  # noqa: E712
            for expression in added
        )


def callable_of(
    compiled: Compiled, constants: Sequence[Any], first_call: FirstCall | None = None
) -> Compiled:
    """A boxed callable as a function of positional arguments, after the module's parameters and buffers."""
    run: Compiled | None = None

    def forward(*args: Any) -> Any:
        values = [*constants, *args]
        return first(values) if run is None else run(values)

    def first(values: list[Any]) -> Any:
        nonlocal run
        other = None if first_call is None else first_call.begin()
        if other is not None:
            function = _after(len(constants), other)
        else:  # later arguments have the types of these: Dynamo guards them
            function = _without_check(compiled) if any(map(_is_plain_subclass, values)) else compiled
        run = function
        try:
            return function(values)
        finally:
            if first_call is not None:
                first_call.end()

    return forward


def _after(count: int, function: Compiled) -> Compiled:
    """A function of a list of arguments, the first ``count`` of which ``function`` does not take."""

    def run(values: list[Any]) -> Any:
        return function(*values[count:])

    return run


def _of_list(compiled: Compiled) -> Compiled:
    def call(args: list[Any]) -> Any:
        return compiled(*args)

    return call


def _is_plain_subclass(value: Any) -> bool:
    """Whether a value is a tensor of a subclass that does not take part in dispatch."""
    if not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter):
        return False
    return cast("Any", type(value)).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _without_check(compiled: Compiled) -> Compiled:
    """A callable without PyTorch's check of custom operators: its mode rejects operators of subclasses."""
    config: Any = torch._functorch.config
    if not hasattr(config, "check_custom_op_aliasing"):
        return compiled

    def unchecked(args: list[Any]) -> Any:
        with config.patch(check_custom_op_aliasing=False):
            return compiled(args)

    return unchecked


def _boxed(compiled: Compiled, key: _Key | None) -> Compiled:
    """A new function that takes a list of arguments and carries the key that AOTAutograd asks for."""
    call: Any = compiled
    if not getattr(compiled, "_boxed_call", False):
        call = _private("torch._functorch._aot_autograd.utils:make_boxed_func")(compiled)

    def boxed(args: list[Any]) -> Any:
        return call(args)

    function: Any = boxed
    function._boxed_call = True
    function._fx_graph_cache_key = key
    return function


def _with_key(aot_config: Any, fake_args: Sequence[Any]) -> Any:
    """``aot_config`` with the cache information that makes AOTAutograd build an entry."""
    cache = _private("torch._functorch._aot_autograd.autograd_cache:AOTAutogradCache")
    info = _private("torch._functorch._aot_autograd.schemas:AOTAutogradCacheInfo")(
        cache_key="kcache",
        start_time_ns=time.time_ns(),
        forward_symints=cache._filter_backed_symints(fake_args),
    )
    return dataclasses.replace(aot_config, cache_info=info)


def _entry_of(compiled: Any) -> Any | None:
    """The entry in the chain of wrappers around a compiled function."""
    kind = _private("torch._functorch._aot_autograd.runtime_wrappers:SerializableCompiledFunction")
    while compiled is not None:
        if isinstance(compiled, kind):
            return compiled.serialize()
        compiled = getattr(compiled, "__wrapped__", None)
    return None


def _merges_inputs(entry: Any) -> bool:
    """Whether inputs that are the same or overlap were merged: Dynamo does not guard all of these facts."""
    return any(getattr(wrapper, "needs_post_compile", True) for wrapper in entry.dispatch_wrappers)


def _alias_guards() -> list[Any]:
    """Guards on duplicate inputs and overlapping storage that this compilation has so far."""
    context = torch._guards.TracingContext.try_get()
    return [] if context is None else list(context.guards_context.aotautograd_guards)


def _cannot_capture(example_inputs: Sequence[Any]) -> str | None:
    """Why no entry can be captured, or ``None``."""
    missing = _missing()
    if missing is not None:
        return f"PyTorch {torch.__version__} has no {missing} as PyTorch 2.13 has it"
    if any(isinstance(value, (list, tuple, dict)) for value in example_inputs):
        return "the graph has nested inputs"
    if any(type(value) is int for value in example_inputs):
        return "the graph has integers as inputs, which AOTAutograd makes symbolic"
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fakify_first_call:
        return "the first call returns fake tensors (fakify_first_call)"
    return None


def _missing() -> str | None:
    """The first private function of PyTorch that is missing or has other parameters."""
    for path, parameters in _PRIVATE.items():
        try:
            function = _private(path)
            accepted = inspect.signature(function).parameters if parameters else ()
        except (ImportError, AttributeError, TypeError, ValueError):
            return path
        if not set(parameters) <= set(accepted):
            return path
    return None


def _private(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _ignore(reason: str) -> None:
    """Drops a reason that nobody asked for."""
