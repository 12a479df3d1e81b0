"""ONNX models over kernels of kcache: the Python surface of ONNX Runtime, and ONNX's backend interface.

    from kcache_grpc.onnx import InferenceSession

    session = InferenceSession("model.onnx")
    outputs = session.run(None, {"x": x})

    import kcache_grpc.onnx as backend  # onnx.backend.base

    outputs = backend.run_model(model, inputs)

Needs ``pip install 'kcache-grpc[onnx]'``. Without ``client=`` one of the process is used, made from the
environment. docs/guide/onnx.md describes it.
"""

from __future__ import annotations

from kcache_grpc.integrations.onnx.backend import (
    Backend,
    Prepared,
    is_compatible,
    prepare,
    run_model,
    run_node,
    supports_device,
)
from kcache_grpc.integrations.onnx.session import InferenceSession, ModelMetadata, NodeArg

__all__ = [
    "Backend",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "Prepared",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
