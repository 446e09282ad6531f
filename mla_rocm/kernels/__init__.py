"""The Triton kernels: the only modules of this room that import triton, each when first used."""
