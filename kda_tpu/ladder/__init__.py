"""The optimisation ladder of KDA prefill: Pallas TPU kernels, each rung one idea in one file.

safe_gate, solve, mxu_port -> fuse -> unified_layout -> flat_grid -> head_block. ``chunk`` holds
the arithmetic that the rungs from ``fuse`` on share, ``bind`` puts a rung together.
"""
