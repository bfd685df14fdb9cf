"""Kernels: fast ways to count kept examples and right models, on a CPU (`counting`) and on a GPU (`int8`).

Each gives exactly the integers of `counts.joint_counts_reference`. They are imported when they are first used, since
Numba and torch take seconds to load.
"""
