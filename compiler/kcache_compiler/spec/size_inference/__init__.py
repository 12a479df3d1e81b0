"""Programs that compute sizes, as programs whose sizes are stated: over symbols of sizes that are derived.

``resolve`` follows every size and every small integer that is made of sizes through a graph. What computes a
size becomes the operation that states it, and what it takes for granted a check of the sizes.
"""

from kcache_compiler.spec.size_inference.resolve import Resolved, Unresolved, resolve

__all__ = ["Resolved", "Unresolved", "resolve"]
