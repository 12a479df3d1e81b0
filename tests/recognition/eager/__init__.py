"""What each graph of the corpus computes, written once more in PyTorch and run eagerly in f64, at any sizes.

Written from the functions that were exported (``exported_jax``, ``exported_onnx``, ``exported_torch``), never
from specs: gradients are autograd's. ``test_eager`` compares each with the program in the corpus, at all its
sizes. Arguments come in the program's order; sizes are read from their shapes.

Sums and means over nothing are as in all three frameworks: 0, and 0/0, which is NaN.
"""
