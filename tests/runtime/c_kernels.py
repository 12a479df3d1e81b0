"""Kernels written in C against the ABI, and manifests for them."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kcache_grpc.model.manifest import (
    ArtifactRef,
    Binding,
    ConstantBinding,
    LaunchSpec,
    Manifest,
    SymbolSpec,
    TensorSpec,
)
from kcache_grpc.model.options import Options
from kcache_grpc.model.target import Target, host_target
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.cpu.threads import HostThreads

HEADER = """
#include <stddef.h>
#include <stdint.h>
typedef int32_t (*kcache_task)(void *closure, int64_t begin, int64_t end, int64_t worker);
typedef struct { uint32_t size, abi; int64_t workers; void *ctx;
    int32_t (*parallel_for)(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure);
} kcache_host;
#define RUN \\
    int32_t kcache_run(void *const *buffers, const int64_t *dims, void *workspace, const kcache_host *host)
uint32_t kcache_abi(void) { return ABI; }
"""


@functools.lru_cache(maxsize=64)
def shared_object(body: str, abi: int = 1, pool: bool = False) -> bytes:
    """``body`` compiled by gcc; ``RUN`` stands for the entry's signature. With a ``pool`` beside it."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        source.write_text(f"#define ABI {abi}\n{HEADER}\n{body}")
        objects: list[str] = []
        if pool:
            (Path(folder) / "pool.o").write_bytes(pool_code())
            objects.append(f"{folder}/pool.o")
        command = ["gcc", "-O2", "-shared", "-fPIC", "-Wall", "-o", str(result), str(source), *objects]
        subprocess.run(command, check=True, timeout=240)
        return result.read_bytes()


def pool_code() -> bytes:
    """The object code of the thread pool, for this machine."""
    from kcache_compiler.llvm.target import target_named
    from kcache_compiler.lower.cpu.thread_pool import pool_object

    return pool_object(target_named(host_target().isa))


def spec(text: str) -> TensorSpec:
    """``f32[4,s0]`` as a value."""
    dtype, _, dims = text.rstrip("]").partition("[")
    return TensorSpec(dtype, tuple(filter(None, dims.split(","))))


def make(
    body: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    symbols: Sequence[tuple[str, int, int]] = (),
    workspace: str = "0",
    launches: Sequence[tuple[str, str]] = (),
    numerics: str = "default",
    target: Target | None = None,
    constants: Sequence[tuple[str, bytes]] = (),
    names: Sequence[str] | None = None,
    threads: HostThreads | None = None,
    required_isa: tuple[str, ...] = (),
    guard: str = "",
    abi: int = 1,
    pool: bool = False,
    **more: Any,
) -> Kernel:
    """A kernel over a C body, with a manifest as a server would make it."""
    so = shared_object(body, pool=pool)
    texts = {"so": so, "llvm": b"; IR", "mlir": b"module {}"}
    manifest = Manifest(
        kernel_digest=hashlib.sha256(so).digest(),
        spec_digest=hashlib.sha256(body.encode()).digest(),
        key=7,
        namespace="default",
        epoch=1,
        target=target or host_target(),
        options=Options(numerics=numerics),
        toolchain_digest=bytes(32),
        guard=guard,
        arg_spec=";".join(inputs),
        abi=abi,
        inputs=tuple(map(spec, inputs)),
        constants=tuple(spec(text) for text, _ in constants),
        outputs=tuple(map(spec, outputs)),
        symbols=tuple(SymbolSpec(*symbol) for symbol in symbols),
        workspace_bytes=workspace,
        launches=tuple(LaunchSpec(f"l{i}", ("copy",), *launch) for i, launch in enumerate(launches)),
        required_isa=required_isa,
        error_codes=((3, "index out of range"),),
        artifacts=tuple(
            ArtifactRef(kind, hashlib.sha256(content).digest(), len(content))
            for kind, content in texts.items()
        ),
        server_version="0",
        compile_time=datetime(2026, 1, 1, tzinfo=timezone.utc),
        compile_seconds=0.1,
        toolchain=(),
    )
    binding = Binding(
        program_digest=bytes(32),
        numerics=numerics,
        namespace="default",
        epoch=1,
        key=7,
        spec_digest=manifest.spec_digest,
        inputs=manifest.inputs,
        arg_names=tuple(names if names is not None else [f"x{i}" for i in range(len(inputs))]),
        outputs=manifest.outputs,
        symbols=manifest.symbols,
        symbol_values=(),
        constants=tuple(
            ConstantBinding(spec(text), hashlib.sha256(content).digest(), len(content))
            for text, content in constants
        ),
    )
    settings: dict[str, Any] = {
        "artifacts": {"so": so},
        "fetch": lambda ref: texts[ref.kind],
        "constants": [content for _, content in constants],
        **more,
    }
    return Kernel(manifest, binding, "compiled", **settings, threads=threads)


ADD = """
RUN { const float *x = buffers[0], *y = buffers[1]; float *out = buffers[2];
    for (int i = 0; i < 32; i++) out[i] = x[i] + y[i];
    return 0; }
"""


def copy_of(size: int) -> str:
    """Copies the bytes of its one input."""
    return f"#include <string.h>\nRUN {{ memcpy(buffers[1], buffers[0], {size}); return 0; }}"
