"""The export's one exception."""


class ExportError(ValueError):
    """Nothing could be exported; the message says what is wrong and how to mend it."""
