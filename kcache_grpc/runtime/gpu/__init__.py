"""Runs kernels on NVIDIA GPUs, through the CUDA driver that is installed and no other part of CUDA."""
