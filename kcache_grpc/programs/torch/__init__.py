"""Programs of PyTorch: exported programs, their guards, mutations and dynamic shapes."""
