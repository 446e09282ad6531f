"""How much memory a point may still take here, so that one that does not fit is refused."""

from pathlib import Path

# Left to everything else: the interpreter, torch, a flush buffer, temporaries of other kernels.
RESERVED_SHARE = 0.1


def available_bytes(platform: str, cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can still be allocated: of the GPU on ``cuda`` and ``rocm``, else of the host.

    Args:
        platform: as a backend names it.
        cgroup: a container's own limit counts where it is lower than the host's free memory.
    """
    if platform in ("cuda", "rocm"):
        import torch

        return int(torch.cuda.mem_get_info()[0])
    import psutil

    available = int(psutil.virtual_memory().available)
    left = _left_in_cgroup(cgroup)
    return available if left is None else min(available, left)


def does_not_fit(needed_bytes: int, platform: str, available: int | None = None) -> str | None:
    """The reason why a point cannot be run here, or None if it can.

    Args:
        needed_bytes: what its inputs, its reference and the outputs take at once.
        platform: as a backend names it.
        available: bytes there; asked for where None.
    """
    there = available_bytes(platform) if available is None else available
    usable = int(there * (1 - RESERVED_SHARE))
    if needed_bytes <= usable:
        return None
    return (
        f"does not fit: needs {needed_bytes / 2**30:,.1f} GiB, "
        f"{usable / 2**30:,.1f} GiB may be used here ({there / 2**30:,.1f} GiB free)"
    )


def _left_in_cgroup(cgroup: Path) -> int | None:
    """What the control group (v2) still allows, page cache counted as free; None without limit."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        statistics = dict(
            line.split() for line in (cgroup / "memory.stat").read_text().splitlines()
        )
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    return max(0, int(limit) - used + int(statistics.get("inactive_file", 0)))
