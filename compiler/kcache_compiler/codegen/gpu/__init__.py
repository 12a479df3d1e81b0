"""GPU kernels: launches planned as for a CPU, each written as a kernel of its own and emitted as PTX."""

from kcache_compiler.codegen.gpu.pipeline import AMD_PIPELINE, PIPELINE, kernel_of, lower_gpu, pipeline_for

__all__ = ["AMD_PIPELINE", "PIPELINE", "kernel_of", "lower_gpu", "pipeline_for"]
