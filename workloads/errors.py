"""What can go wrong with a workload, as one small family of exceptions with one-line messages."""


class WorkloadError(ValueError):
    """A request that cannot be met: an unknown id, a bad name, a bad argument."""


class MalformedInputError(WorkloadError):
    """A file that is there but does not hold what its format promises."""


class MissingInputError(WorkloadError):
    """A file that is not there."""


class PinMismatchError(WorkloadError):
    """Content that was read well and is not the pinned content."""


class UnavailableError(WorkloadError):
    """Something outside this machine (the hub) that cannot be reached and is not cached."""
