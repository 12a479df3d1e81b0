"""Programs as ``onnx.ModelProto``: its bytes, and how to tell them from others. Imports no onnx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kcache_grpc.errors import ArgumentError, KcacheError

if TYPE_CHECKING:
    from kcache_grpc.programs.onnx.weights import LiftedModel

#: Fields of ``ModelProto`` by number, with their wire types, and those that every model has.
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_NEEDED = frozenset({1, 7, 8})


def is_model(body: bytes | memoryview) -> bool:
    """Whether bytes are a serialized ``onnx.ModelProto``, as far as its outermost fields tell."""
    fields = set[int]()
    at, end = 0, len(body)
    while at < end:
        tag, at = _varint(body, at)
        field, wire = tag >> 3, tag & 7
        if _FIELDS.get(field) != wire:
            return False
        length, at = _varint(body, at)
        if wire == 2:
            at += length
        fields.add(field)
    return at == end and fields >= _NEEDED


def _varint(body: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a number and where the next one starts; past the end where it is cut off or too long."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(body):
            break
        byte = body[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    return 0, len(body) + 1


def model_of(program: Any) -> Any:
    """The ``ModelProto`` of a model, or of what ``torch.onnx.export`` returns; ``None`` for all else."""
    cls = cast("type[object]", type(program))
    package = cls.__module__.partition(".")[0]
    if package == "onnx" and cls.__name__ == "ModelProto":
        return program
    if package == "torch" and cls.__name__ == "ONNXProgram":
        return program.model_proto
    return None


def model_bytes(model: Any) -> bytes:
    """A model's bytes, the same for equal models. Raises ``ArgumentError`` where protobuf has no room."""
    try:
        return model.SerializeToString(deterministic=True)
    except Exception as error:
        raise _too_large(error) from error


def lifted_model(model: Any) -> LiftedModel:
    """A model's bytes, the same for equal models, without the weights of a large one.

    Raises ``ArgumentError`` where protobuf has no room.
    """
    from kcache_grpc.programs.onnx.weights import lift_model

    try:
        return lift_model(model)
    except KcacheError:
        raise
    except Exception as error:
        raise _too_large(error) from error


def _too_large(error: Exception) -> ArgumentError:
    return ArgumentError(
        f"the model does not serialize ({error}): a message holds at most 2 GiB; save the model with "
        "save_as_external_data=True, and pass its path"
    )
