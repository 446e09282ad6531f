"""The order of calls: turns, alternation, and that drift cancels."""

from hypothesis import given
from hypothesis import strategies as st
from measure.fakes import ScriptedBackend

from k3bench.measure import Protocol, interleave
from k3bench.measure.interleave import round_order


def test_implementations_take_turns_and_the_order_alternates() -> None:
    backend = ScriptedBackend()
    calls = {name: (lambda name=name: (name, 1.0)) for name in "ab"}
    interleave(calls, Protocol("t", warmup=2, repeat=3), backend)
    assert backend.order == [
        "wait a", "wait b", "wait b", "wait a",
        "time a", "time b", "time b", "time a", "time a", "time b",
    ]  # fmt: skip


@given(rounds=st.integers(1, 20).map(lambda n: 2 * n), count=st.integers(1, 6))
def test_every_implementation_has_the_same_mean_position_over_an_even_number_of_rounds(
    rounds: int, count: int
) -> None:
    names = [f"i{k}" for k in range(count)]
    total = dict.fromkeys(names, 0)
    for index in range(rounds):
        for position, name in enumerate(round_order(names, index)):
            total[name] += position
    assert len(set(total.values())) == 1


def test_a_linear_drift_gives_two_equal_kernels_equal_totals() -> None:
    now = 0.0

    def drifting_call(name: str) -> tuple[str, float]:
        nonlocal now
        now += 1.0
        return name, 1.0 + 0.01 * now

    calls = {name: (lambda name=name: drifting_call(name)) for name in ("first", "second")}
    samples = interleave(calls, Protocol("t", warmup=0, repeat=10), ScriptedBackend())
    assert abs(sum(samples["first"]) - sum(samples["second"])) < 1e-9


def test_all_samples_are_kept_in_the_order_taken() -> None:
    costs = iter([0.3, 0.1, 0.2])
    samples = interleave(
        {"a": lambda: ("a", next(costs))}, Protocol("t", warmup=0, repeat=3), ScriptedBackend()
    )
    assert samples == {"a": (0.3, 0.1, 0.2)}
