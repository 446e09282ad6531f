"""The one exception of this room."""


class ManifestError(ValueError):
    """A manifest that cannot be made or trusted: one line that names the field and the mend."""
