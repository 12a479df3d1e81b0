"""Planned launches, their loops: vectorization, reductions, stores; elements, addresses; for GPUs too."""
