"""Programs without MLIR: ``kcache.Graph`` builds the message that docs/reference/graph-format.md documents.

g = kcache.Graph()
x = g.input("x", "f32", (None, 4))
w = g.input("w", "f32", (4, 8))
g.output(g.softmax(x @ w, axis=-1))
kernel = client.compile(g)
"""

from kcache_grpc.graph.builder import Graph
from kcache_grpc.graph.value import Value

__all__ = ["Graph", "Value"]
