"""Shape inference over canonical graphs.

``infer_sizes`` follows every size, and every small integer tensor that is made of sizes, through a graph.
Operations that compute sizes are replaced by operations that state them, over symbols that
``kcache_compiler.shapes`` derives, and what the program takes for granted becomes guards.
"""

from kcache_compiler.spec.shape_inference.infer import infer_sizes

__all__ = ["infer_sizes"]
