"""Adapters to other projects' kernels: same cases, inputs and checks as ours, nothing of theirs."""
