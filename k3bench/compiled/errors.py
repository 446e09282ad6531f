"""What can go wrong when a compiler is asked for figures, each with one clear message."""


class CompiledError(ValueError):
    """A request that cannot be served: a bad point, a compiler that is not there."""


class CompilerUnavailableError(CompiledError):
    """libtpu or jax is missing, or is another version than the parsers were written for."""


class CompiledFormatError(CompiledError):
    """The compiler's output does not look as expected; no figure is made up from it."""
