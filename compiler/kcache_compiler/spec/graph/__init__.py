"""The canonical graph: nodes, types, constants, labels, and the hash-consing builder."""
