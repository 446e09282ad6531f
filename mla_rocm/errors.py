"""The one exception of this room: an argument that no MLA kernel here can take."""


class MlaArgumentError(ValueError):
    """A bad argument; its one line says what is wrong, in which argument, and how to mend it."""
