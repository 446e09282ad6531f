"""K3Bench's machinery: measuring, keeping, judging and showing what Kimi K3's kernels cost."""

__version__ = "0.1.0"
