"""Reads a PyTorch/Kineto Chrome trace, ROCm or CUDA, plain or gzipped, into the event table."""

from pathlib import Path

from k3bench.attribution.byte_stream import ByteStream, ReadLimits
from k3bench.attribution.errors import EmptyTraceError
from k3bench.attribution.event_scan import EventScan
from k3bench.attribution.events import Trace
from k3bench.attribution.table_builder import DeviceSort, TableBuilder


def read_trace(
    path: str | Path,
    *,
    limits: ReadLimits | None = None,
    rank: int | None = None,
    device: DeviceSort = "gpu",
    require_device_work: bool = True,
) -> Trace:
    """The event table of one rank's trace.

    ``rank`` picks one rank of a merged trace. ``device="cpu"`` takes the outermost CPU operators as
    the device work, for a model that ran on a CPU. ``require_device_work=False`` admits a trace
    without kernels, as a capture trace is.

    Raises TraceFormatError for a file that is malformed, over a limit or merged over ranks,
    EmptyTraceError for one without device work, and OSError where it cannot be read. A file that
    is cut off is read up to the cut, and ``Trace.cut_off`` says where that is.
    """
    path = Path(path)
    stream = ByteStream(path, limits or ReadLimits())
    scan = EventScan(stream)
    table = TableBuilder(path.name, stream.limits, rank, device)
    for batch in scan:
        table.add(batch)
    notes = []
    if scan.cut_off:
        notes.append(f"{path.name} is {scan.cut_off}; events up to there were read")
    if scan.lenient_events:
        notes.append(f"{path.name}: {scan.lenient_events:,} events are not strict JSON")
    trace = table.build(stream.source, scan.envelope, scan.cut_off, tuple(notes))
    if require_device_work:
        require_work(trace)
    return trace


def require_work(trace: Trace) -> None:
    """Raises EmptyTraceError for a trace without device work."""
    if not len(trace.device):
        raise EmptyTraceError(
            f"{trace.label}: no kernels among {sum(trace.categories.values()):,} events"
            + (f", {trace.cut_off}" if trace.cut_off else "")
            + ": the profiler recorded no device work; profile again and check its activities"
        )
