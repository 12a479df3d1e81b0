"""``InferenceSession``: the Python surface of ONNX Runtime over kernels of kcache."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kcache_grpc.client.client import Client
from kcache_grpc.errors import ArgumentError, InvalidProgram, KcacheError, NotFound, UnsupportedOp
from kcache_grpc.integrations.onnx.model import Array, CompiledModel, dtype_of, onnx, shared_client
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.model.options import Options

#: What ``get_providers`` returns.
PROVIDER = "KcacheExecutionProvider"
_CPU = ("CPUExecutionProvider", PROVIDER)


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``shape`` has an int, a name, or ``None`` for each dimension."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """What the model says about itself."""

    custom_metadata_map: dict[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int


class InferenceSession:
    """A model and its kernels, with the methods of ``onnxruntime.InferenceSession`` that inference needs.

    ``path_or_bytes``: a path, the bytes of a model, or an ``onnx.ModelProto``. Weights above 1 MiB in
    total are prepared at the first call (docs/guide/bound-arguments.md). ``sess_options`` and
    ``provider_options`` are accepted and change nothing. ``providers``: names, of which one must be
    "CPUExecutionProvider" or "KcacheExecutionProvider", else there is a ``KcacheWarning``.
    ``client``: ``None`` for one of the process, made from the environment. ``target``, ``options``: those of
    ``Client.compile``.
    ``fallback``: "error" to raise, or "onnxruntime" to let ONNX Runtime run a model that has no kernel, with
    a ``KcacheWarning``; ``failure`` has the reason.

    Safe from many threads. Raises ``InvalidProgram``, ``UnsupportedOp``, ``NotFound`` for a path,
    ``Unavailable``, ``ArgumentError`` for ``fallback``.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        client: Client | None = None,
        target: str = "host",
        options: Options | None = None,
        fallback: str = "error",
    ) -> None:
        if fallback not in ("error", "onnxruntime"):
            raise ArgumentError(f"fallback is {fallback!r}; use 'error' or 'onnxruntime'")
        _check_providers(providers)
        self._session_options = sess_options
        path, model = _read(path_or_bytes)
        #: Why ONNX Runtime runs the model; ``None`` if kernels do.
        self.failure: KcacheError | None = None
        self._compiled: CompiledModel | None = None
        self._onnxruntime: Any = None
        try:
            _check_tensors(model)
            self._compiled = _compiled(model, client or shared_client(), path, target, options)
        except KcacheError as error:
            if fallback == "error":
                raise
            self.failure = error
            self._onnxruntime = _fallback(error, model, path, sess_options)
        self._describe(model)

    def _describe(self, model: Any) -> None:
        """Read what is asked later of the model, which is not held, as it may be large."""
        initial = {tensor.name: tensor for tensor in model.graph.initializer}
        self._inputs = [_node_arg(info) for info in model.graph.input if info.name not in initial]
        self._overridable = [_node_arg(info) for info in model.graph.input if info.name in initial]
        self._outputs = [_node_arg(info) for info in model.graph.output]
        arguments = set[str]() if self._compiled is None else {info.name for info in self._compiled.inputs}
        self._defaults = {
            name: onnx.numpy_helper.to_array(initial[name]) for name in sorted(arguments & initial.keys())
        }
        self._metadata = ModelMetadata(
            custom_metadata_map={entry.key: entry.value for entry in model.metadata_props},
            description=model.doc_string,
            domain=model.domain,
            graph_description=model.graph.doc_string,
            graph_name=model.graph.name,
            producer_name=model.producer_name,
            version=model.model_version,
        )

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Array]:
        """Compute the outputs with these names, in that order; ``None``: all.

        ``input_feed``: an array, or what ``numpy.asarray`` takes, for each input. Raises ``ArgumentError``
        for a missing or unknown name, a wrong dtype or shape.
        """
        if self._compiled is None:
            return self._onnxruntime.run(output_names, input_feed, run_options)
        names = [node.name for node in self._outputs]
        chosen = range(len(names)) if not output_names else [_index(names, name) for name in output_names]
        results = self._compiled.run(self._arrays(self._compiled, input_feed))
        return [results[index] for index in chosen]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that ``run`` needs."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default value."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._metadata

    def get_providers(self) -> list[str]:
        """What computes: "KcacheExecutionProvider", or what ONNX Runtime says if it runs the model."""
        return [PROVIDER] if self._onnxruntime is None else self._onnxruntime.get_providers()

    def get_session_options(self) -> Any:
        """``sess_options`` of the constructor."""
        return self._session_options

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels (``kcache_grpc.Kernel``) that calls use."""
        return () if self._compiled is None else self._compiled.kernels

    def _arrays(self, compiled: CompiledModel, feed: Mapping[str, Any]) -> list[Array]:
        missing = [node.name for node in self._inputs if node.name not in feed]
        if missing:
            raise ArgumentError(f"inputs {missing} are missing; the feed has {[*feed]}", argument=missing[0])
        names = {info.name for info in compiled.inputs}
        for name in feed:
            if name not in names:
                raise ArgumentError(f"the model has no input {name!r}; it has {sorted(names)}", argument=name)
        arrays = [
            _array(feed.get(info.name, self._defaults.get(info.name)), info) for info in compiled.inputs
        ]
        if compiled.is_specialized:  # a kernel for all calls checks them itself
            for array, info in zip(arrays, compiled.inputs, strict=True):
                _require_declared(array, info)
        return arrays


def _compiled(
    model: Any, client: Client, path: Path | None, target: str, options: Options | None
) -> CompiledModel:
    """The model with bound weights, or without where it cannot have them."""
    try:
        return CompiledModel(model, client, path, target=target, options=options, bound="weights")
    except (ArgumentError, UnsupportedOp):  # few weights, a target without them, sizes that depend on data
        return CompiledModel(model, client, path, target=target, options=options)


def _read(path_or_bytes: Any) -> tuple[Path | None, Any]:
    """The path, if it is one, and the model; a file's external data is not read."""
    if isinstance(path_or_bytes, onnx.ModelProto):
        return None, path_or_bytes
    try:
        if isinstance(path_or_bytes, (bytes, bytearray)):
            return None, onnx.load_model_from_string(bytes(path_or_bytes))
        path = Path(path_or_bytes)
        return path, onnx.load(path, load_external_data=False)
    except FileNotFoundError as error:
        raise NotFound(f"no such file: {path_or_bytes}") from error
    except OSError as error:
        raise ArgumentError(f"{path_or_bytes} cannot be read: {error.strerror or error}") from error
    except TypeError as error:
        raise ArgumentError(
            f"a {type(path_or_bytes).__qualname__} is no model: pass a path, bytes or an onnx.ModelProto"
        ) from error
    except Exception as error:  # DecodeError of protobuf, which is not imported here
        raise InvalidProgram(f"the bytes are no ONNX model: {error}") from error


def _fallback(error: KcacheError, model: Any, path: Path | None, sess_options: Any) -> Any:
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError:
        raise error from None
    warnings.warn(
        f"ONNX Runtime runs the model: {type(error).__name__}: {error}", KcacheWarning, stacklevel=3
    )
    source = model.SerializeToString() if path is None else os.fspath(path)
    return onnxruntime.InferenceSession(source, sess_options, providers=["CPUExecutionProvider"])


def _check_providers(providers: Sequence[Any] | None) -> None:
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
    if names and not any(name in _CPU for name in names):
        warnings.warn(f"kernels run on the CPU, not on {', '.join(names)}", KcacheWarning, stacklevel=3)


def _check_tensors(model: Any) -> None:
    for info in (*model.graph.input, *model.graph.output):
        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value") or "no type"
            raise UnsupportedOp(f"{info.name!r} is no tensor but {kind}")


def _node_arg(info: Any) -> NodeArg:
    if not info.type.HasField("tensor_type"):
        return NodeArg(info.name, str(info.type.WhichOneof("value")), [])
    tensor = info.type.tensor_type
    if tensor.elem_type == onnx.TensorProto.STRING:
        name = "string"
    else:
        name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    shape = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
    ]
    return NodeArg(info.name, f"tensor({name})", shape)


def _index(names: list[str], name: str) -> int:
    if name not in names:
        raise ArgumentError(f"the model has no output {name!r}; it has {names}")
    return names.index(name)


def _require_declared(array: Array, info: Any) -> None:
    """Raise ``ArgumentError`` for another dtype or size than the model declares."""
    node, dtype = _node_arg(info), dtype_of(info)
    fits = len(node.shape) == array.ndim and all(
        not isinstance(size, int) or size == extent
        for size, extent in zip(node.shape, array.shape, strict=True)
    )
    if array.dtype != dtype or (info.type.tensor_type.HasField("shape") and not fits):
        raise ArgumentError(
            f"input {info.name!r} must be {node.type} of shape {node.shape}, "
            f"got {array.dtype} of shape {list(array.shape)}",
            argument=info.name,
        )


def _array(value: Any, info: Any) -> Array:
    """A C-contiguous array; what is no array gets the dtype of the input."""
    dtype: Any = None
    if not hasattr(value, "dtype"):
        dtype = dtype_of(info)
    array: Array = np.asarray(value, dtype)
    return array if array.flags.c_contiguous else array.copy()
