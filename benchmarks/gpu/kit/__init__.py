"""GPU replay kit: kernels compiled on one machine, executed and judged on another that has a GPU.

``pack`` needs the compiler and this repository's tests. What a pack runs needs Python 3.10, NumPy and
``cuda-bindings`` alone: the modules that ``RUNTIME`` of ``writing.py`` lists.
"""
