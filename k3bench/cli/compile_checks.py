"""What can go wrong around a compiler, as one line and an exit code."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from k3bench.cli.errors import BAD_DATA, SOFTWARE, UNAVAILABLE, USAGE, CliError
from k3bench.compiled.errors import CompiledError, CompiledFormatError, CompilerUnavailableError


@contextmanager
def asking() -> Iterator[None]:
    """While a request is put together: whatever is wrong with it was typed."""
    try:
        yield
    except CompiledError as error:
        raise CliError(str(error), USAGE) from error


@contextmanager
def compiling() -> Iterator[None]:
    """While the compiler works and its answer is read."""
    try:
        yield
    except CompilerUnavailableError as error:
        raise CliError(str(error), UNAVAILABLE) from error
    except CompiledFormatError as error:
        raise CliError(str(error), BAD_DATA) from error
    except CompiledError as error:
        raise CliError(str(error), SOFTWARE) from error


def require_kda(names: Sequence[str]) -> None:
    """CliError unless kda_tpu has implementations or variants of these names."""
    # The table imports jax: without these, jax would look for devices that are not there.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    from kda_tpu import IMPLEMENTATIONS, VARIANTS

    known = (*IMPLEMENTATIONS, *VARIANTS)
    for name in names:
        if name not in known:
            raise CliError(f"--implementation {name}: use one of {', '.join(known)}", USAGE)
