"""GPU replay kit: kernels compiled on one machine, executed and judged on another that has a GPU.

``packing`` needs the compiler and this repository's tests. ``runtime`` is what a pack contains and runs: it
needs Python 3.10, NumPy and ``cuda-bindings`` alone. ``report`` writes the page of a run's results.
"""
