"""The one exception that bad arguments to this package raise."""


class KdaArgumentError(ValueError):
    """An argument that cannot be right: the message names it, what is wrong, and the mend."""
