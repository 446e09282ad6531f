"""What compilers say of accelerators that are not here: tpu/ by libtpu, amdgpu/ by Triton.

Both hand a kernel to the real compiler in a process of its own, read what it made, and model a time
from that. Here is what they share.
"""
