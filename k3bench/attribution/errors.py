"""The errors of attribution: one line each, saying what is wrong, where, and how to mend it."""


class AttributionError(ValueError):
    """Attribution could not be done; the base of the errors here."""


class TraceFormatError(AttributionError):
    """A file is not a readable Chrome trace: malformed, over a limit, or of merged ranks."""


class EmptyTraceError(TraceFormatError):
    """A trace without device work: the profiler reported success and recorded nothing."""


class RequestError(AttributionError):
    """What was asked for is not there to be had: an unknown name, or a missing argument."""


class DefinitionError(AttributionError):
    """A block definition is malformed."""


class MapError(AttributionError):
    """A learned map is malformed, or cannot be learned from this trace."""


class PairingError(AttributionError):
    """A capture and its replay are not the same graph."""


class StepsError(AttributionError):
    """The counts of a trace contradict one another about the number of steps."""
