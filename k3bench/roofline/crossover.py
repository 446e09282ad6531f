"""Where one form starts to beat another as the context grows."""

from collections.abc import Callable

from k3bench.roofline.errors import RooflineError


def first_context(beats: Callable[[int], bool], longest: int, shortest: int = 1) -> int | None:
    """The smallest context from which ``beats`` holds, up to ``longest``; None where it never does.

    ``beats`` may change once, from false to true: costs of one form grow faster in the context than
    those of the other. RooflineError where it holds at first and not at the end.
    """
    if not 1 <= shortest <= longest:
        raise RooflineError(f"contexts {shortest} to {longest}: give 1 <= shortest <= longest")
    if beats(shortest):
        if not beats(longest):
            raise RooflineError(
                f"it wins at {shortest} and loses at {longest}: ask for the other way round"
            )
        return shortest
    if not beats(longest):
        return None
    low, high = shortest, longest
    while high - low > 1:
        middle = (low + high) // 2
        if beats(middle):
            high = middle
        else:
            low = middle
    return high
