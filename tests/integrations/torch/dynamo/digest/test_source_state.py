"""What the canonical text of a graph says of PyTorch's global state and versions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from kcache_grpc.integrations.torch.dynamo.digest.source_digest import (
    canonical_text,
)

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@contextlib.contextmanager
def precision(value: str) -> Iterator[None]:
    """A precision of matrix products; its setter also changes that of single backends."""
    matmul = ("cuda", "mkldnn")
    before = torch.get_float32_matmul_precision()
    backends = [torch._C._get_fp32_precision_getter(backend, "matmul") for backend in matmul]
    torch.set_float32_matmul_precision(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for backend, setting in zip(matmul, backends, strict=True):
            torch._C._set_fp32_precision_setter(backend, "matmul", setting)


@contextlib.contextmanager
def swapped(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


def flag(holder: Any, name: str, value: Any) -> Any:
    return swapped(lambda: getattr(holder, name), lambda new: setattr(holder, name, new), value)


def sdp(name: str, value: bool) -> Any:
    cuda = torch.backends.cuda
    return swapped(getattr(cuda, f"{name}_sdp_enabled"), getattr(cuda, f"enable_{name}_sdp"), value)


def functorch(**fields: Any) -> Any:
    return torch._functorch.config.patch(**fields)


@contextlib.contextmanager
def denormals_flushed() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormal numbers")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextlib.contextmanager
def anomaly() -> Iterator[None]:
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        yield


def warn_only() -> Any:
    return swapped(
        torch.are_deterministic_algorithms_enabled,
        lambda on: torch.use_deterministic_algorithms(on, warn_only=on),
        True,
    )


STATES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to half": lambda: torch.autocast("cpu", torch.float16),
    "autocast without cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    "dtype of autocast": lambda: swapped(
        lambda: torch.get_autocast_dtype("cpu"),
        lambda dtype: torch.set_autocast_dtype("cpu", dtype),
        torch.half,
    ),
    "common subexpressions": lambda: functorch(cse=False),
    "deterministic": lambda: swapped(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "deterministic with warnings": warn_only,
    "uninitialized memory": lambda: flag(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "float32 precision": lambda: precision("high"),
    "float32 precision, medium": lambda: precision("medium"),
    "default dtype": lambda: swapped(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": lambda: torch.device("meta"),
    "flushed denormals": denormals_flushed,
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "cudnn": lambda: flag(torch.backends.cudnn, "enabled", False),
    "cudnn benchmark": lambda: flag(torch.backends.cudnn, "benchmark", True),
    "cudnn deterministic": lambda: flag(torch.backends.cudnn, "deterministic", True),
    "flash attention": lambda: sdp("flash", False),
    "efficient attention": lambda: sdp("mem_efficient", False),
    "math attention": lambda: sdp("math", False),
    "cudnn attention": lambda: sdp("cudnn", False),
    "half reduction of matrix products": lambda: flag(
        torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False
    ),
    "fast path of attention": lambda: swapped(
        torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, False
    ),
    "nnpack": lambda: torch.backends.nnpack.flags(enabled=False),
    "anomaly mode": anomaly,
    "view replay": lambda: swapped(torch._C._is_view_replay_enabled, torch._C._set_view_replay_enabled, True),
    "hooks on saved tensors": lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
    "partitioner": lambda: functorch(activation_memory_budget=0.5),
    "recomputed views": lambda: functorch(recompute_views=True),
    "random numbers": lambda: functorch(functionalize_rng_ops=True),
    "donated buffers": lambda: functorch(donated_buffer=False),
    "tangents": lambda: functorch(guess_tangent_strides_as_outputs=False),
    "symbolic shapes": lambda: torch.fx.experimental._config.patch(backed_size_oblivious=True),
    "inductor": lambda: torch._inductor.config.patch(fallback_random=True),
}
if hasattr(torch._C, "_get_fa4_sdp_enabled"):  # since PyTorch 2.14 or 2.15
    STATES["fourth flash attention"] = lambda: swapped(
        torch._C._get_fa4_sdp_enabled, torch._C._set_sdp_use_fa4, not torch._C._get_fa4_sdp_enabled()
    )


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
def test_the_text_depends_on_global_state() -> None:
    graph = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    inputs = [torch.ones(2)]
    plain = canonical_text(graph, inputs, {})
    results = {}
    for name, change in STATES.items():
        with change():
            results[name] = canonical_text(graph, inputs, {})
        assert canonical_text(graph, inputs, {}) == plain, name
    assert plain not in results.values()
    assert len(set(results.values())) == len(results)


def test_settings_without_effect_are_not_in_the_text() -> None:
    graph = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    with functorch(strict_autograd_cache=True, debug_partitioner=True):
        changed = canonical_text(graph, [torch.ones(2)], {})
    assert changed == canonical_text(graph, [torch.ones(2)], {})


def test_versions_are_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    results = {canonical_text(graph, [torch.ones(2)], {})}
    monkeypatch.setattr(torch, "__version__", "2.99")
    results.add(canonical_text(graph, [torch.ones(2)], {}))
    monkeypatch.setattr(torch.version, "git_version", "abc")
    results.add(canonical_text(graph, [torch.ones(2)], {}))
    assert len(results) == 3
