"""Whole models of PyTorch, small and with random weights, exported and run by kcache."""
