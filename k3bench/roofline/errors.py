"""The one exception of this room: a question that has no answer, and how to mend it."""


class RooflineError(ValueError):
    """Bad shapes, an unknown model or device, or a definition file that does not read."""
