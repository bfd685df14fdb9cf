"""Kernels of our own, in Triton, each beside its slow twin in torch that it is tested against."""
