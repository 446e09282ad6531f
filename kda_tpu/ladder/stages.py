"""Running the computation of several heads in one kernel: one after another, or stage by stage.

A chunk of one head is a chain of dependent matrix products, each waiting some hundred cycles for
the one before. The arithmetic is therefore written as coroutines that yield where they would
wait, and whoever runs them decides the order of the heads' stages. It decides nothing else:
every order computes the same numbers.
"""

from collections.abc import Generator, Iterable
from typing import TypeVar

Result = TypeVar("Result")
Stages = Generator[None, None, Result]


def run(stages: Stages[Result]) -> Result:
    """One head alone, to its end."""
    return interleave([stages])[0]


def interleave(heads: Iterable[Stages[Result]]) -> list[Result]:
    """Stage-major: the first stage of every head, then the second of every head, and so on."""
    results: dict[int, Result] = {}
    waiting = dict(enumerate(heads))
    while waiting:
        for index, stages in list(waiting.items()):
            try:
                next(stages)
            except StopIteration as finished:
                results[index] = finished.value
                del waiting[index]
    return [results[index] for index in sorted(results)]


def together(jobs: Iterable[Stages[None]]) -> Stages[None]:
    """Several jobs as one: its every stage is a stage of each of them."""
    running = list(jobs)
    while running:
        for stages in list(running):
            try:
                next(stages)
            except StopIteration:
                running.remove(stages)
        yield


def start_in_rounds(jobs: Iterable[tuple[int, Stages[None]]]) -> None:
    """Stage-major again, but a job begins in the round that stands before it, others running.

    In every round each running job does one stage, in the order given.
    """
    jobs = list(jobs)
    done: set[int] = set()
    round_ = 0
    while len(done) < len(jobs):
        for index, (first, stages) in enumerate(jobs):
            if first <= round_ and index not in done:
                try:
                    next(stages)
                except StopIteration:
                    done.add(index)
        round_ += 1
