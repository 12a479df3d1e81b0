"""Canonical text of PyTorch's global state: modes and flags that a trace of AOTAutograd reads."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.digest.source_values import NotDigestible

torch: Any = import_module("torch")

#: Getters of ``torch._C`` for flags that choose decompositions, kernels or dispatch.
_FLAGS = (
    ("_get_blas_preferred_backend", "_get_cpu_allow_fp16_reduced_precision_reduction", "_get_cpu_capability")
    + ("_get_cublas_allow_bf16_reduced_precision_reduction", "_get_cublas_allow_fp16_accumulation")
    + (
        "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cudnn_benchmark",
        "_get_cudnn_deterministic",
    )
    + ("_get_cudnn_enabled", "_get_cudnn_sdp_enabled", "_get_deterministic_algorithms")
    + ("_get_deterministic_algorithms_warn_only", "_get_deterministic_fill_uninitialized_memory")
    + ("_get_fa3_sdp_enabled", "_get_fa4_sdp_enabled", "_get_flash_sdp_enabled")
    + ("_get_float32_matmul_precision",)
    + ("_get_linalg_preferred_backend", "_get_math_sdp_allow_fp16_bf16_reduction", "_get_math_sdp_enabled")
    + ("_get_mem_efficient_sdp_enabled", "_get_miopen_immediate", "_get_mkldnn_deterministic")
    + ("_get_mkldnn_enabled", "_get_nnpack_enabled", "_get_overrideable_sdp_enabled", "_get_qengine")
    + ("_get_rocm_fa_preferred_backend", "_get_sdp_priority_order", "_get_sm_carveout_experimental")
    + ("_is_fwd_grad_enabled", "_is_view_replay_enabled", "is_inference_mode_enabled", "is_grad_enabled")
    + ("is_anomaly_enabled", "is_autocast_cache_enabled", "_is_multithreading_enabled")
)
_PRECISIONS = (
    ("generic", "all"),
    *(
        (backend, operation)
        for backend in ("cuda", "mkldnn")
        for operation in ("all", "matmul", "conv", "rnn")
    ),
)
#: Fields of ``torch._functorch.config`` that change neither a graph nor a wrapper.
_FUNCTORCH_IGNORED = frozenset(
    (
        "_save_config_ignore",
        "autograd_cache_allow_custom_autograd_functions",
        "autograd_cache_normalize_inputs",
    )
    + ("bundled_autograd_cache", "bypass_autograd_cache_key", "debug_assert", "debug_partitioner")
    + ("enable_autograd_cache", "enable_remote_autograd_cache", "force_autograd_cache")
    + ("force_non_lazy_backward_lowering", "memory_budget_pareto_dir", "strict_autograd_cache")
    + ("torch_compile_graph_format", "visualize_memory_budget_pareto", "error_on_custom_op_aliasing")
)
_SHAPES_IGNORED = frozenset(
    ("check_shape_env_recorded_events", "extended_debug_cpp", "extended_debug_create_symbol")
    + ("extended_debug_current_loc", "extended_debug_guard_added", "print_specializations")
    + ("enrich_profiler_metadata", "translation_validation_timeout", "validate_shape_env_version_key")
)
#: Fields of ``torch._inductor.config`` that functionalization and the partitioners read.
_INDUCTOR = ("enable_auto_functionalized_v2", "fallback_random", "post_grad_fusion_options")
_DYNAMO = ("fake_tensor_disable_inference_mode", "_custom_ops_profile")
#: The smallest positive double: arithmetic flushes it to zero in that mode.
_DENORMAL = struct.pack("<q", 1)


def state_lines() -> list[str]:
    """One line for each part of the state. Raises ``NotDigestible`` for modes and hooks of users."""
    _reject_modes()
    config: Any = import_module("torch._functorch.config")
    shapes: Any = import_module("torch.fx.experimental._config")
    inductor: Any = import_module("torch._inductor.config")
    dynamo: Any = import_module("torch._dynamo.config")
    return [
        f"versions: {torch.__version__} {torch.version.git_version} {torch.version.cuda} {torch.version.hip}",
        f"python: {sys.version_info[:2]} {sys.byteorder} {sys.platform}",
        *(f"{name}: {_flag(name)}" for name in _FLAGS),
        *_precision_lines(),
        *_autocast_lines(),
        *_other_lines(),
        *_config_lines("functorch", config.get_config_copy(), _FUNCTORCH_IGNORED),
        *_config_lines("symbolic shapes", shapes.get_config_copy(), _SHAPES_IGNORED),
        *_config_lines("inductor", {name: getattr(inductor, name, None) for name in _INDUCTOR}),
        *_config_lines("dynamo", {name: getattr(dynamo, name, None) for name in _DYNAMO}),
    ]


def _reject_modes() -> None:
    if torch._C._len_torch_dispatch_stack():
        raise NotDigestible("a dispatch mode is active")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotDigestible("a transform of functorch is active")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise NotDigestible("hooks on saved tensors are active")
    if torch.autograd.forward_ad._current_level >= 0:
        raise NotDigestible("forward-mode differentiation is active")
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if compiled is not None and getattr(compiled, "in_compiled_autograd_region", False):
        raise NotDigestible("compiled autograd is active")
    device_context: Any = import_module("torch.utils._device").DeviceContext
    for index in range(torch._C._len_torch_function_stack()):
        if type(torch._C._get_function_stack_at(index)) is not device_context:
            raise NotDigestible("a mode of torch functions is active")


def _flag(name: str) -> Any:
    getter = getattr(torch._C, name, None)
    return None if getter is None else getter()


def _precision_lines() -> list[str]:
    getter = getattr(torch._C, "_get_fp32_precision_getter", None)
    return [] if getter is None else [f"precision: {[getter(*pair) for pair in _PRECISIONS]}"]


def _autocast_lines() -> list[str]:
    return [
        f"autocast {device}: {torch.is_autocast_enabled(device)} {torch.get_autocast_dtype(device)}"
        for device in sorted(torch._C._autocast_supported_devices())
    ]


def _other_lines() -> list[str]:
    (smallest,) = struct.unpack("<d", _DENORMAL)
    included, excluded = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    )
    einsum = torch.backends.opt_einsum
    return [
        f"default dtype: {torch.get_default_dtype()}",
        f"default device: {torch.get_default_device()}",
        f"flush denormal: {struct.pack('<d', smallest * 1.0) != _DENORMAL}",
        f"dispatch keys: {included.raw_repr()} {excluded.raw_repr()}",
        f"saved tensor hooks allowed: {torch._C._autograd._saved_tensors_hooks_is_enabled()}",
        f"attention fast path: {torch.backends.mha.get_fastpath_enabled()}",
        f"einsum: {einsum.is_available()} {einsum.enabled} {einsum.strategy}",
        f"cudnn tf32: {torch.backends.cudnn.allow_tf32} {torch.backends.cuda.matmul.allow_tf32}",
    ]


def _config_lines(title: str, fields: Mapping[str, Any], ignored: frozenset[str] = frozenset()) -> list[str]:
    return [
        f"{title}.{name}: {_config_text(title, name, value)}"
        for name, value in sorted(fields.items())
        if name not in ignored
    ]


def _config_text(title: str, name: str, value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (dict, list, tuple, set)) and not value:
        return "empty"
    raise NotDigestible(f"the setting {name} of {title} is an object")
