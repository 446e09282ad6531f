"""Ranges attached from outside: a no-op when off, gone after detach, safe under compile."""

import copy
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from k3bench.attribution.live import launch, ranges
from k3bench.attribution.live.ranges import (
    K3_RULES,
    SWITCH_VARIABLE,
    RangeRule,
    RangesError,
    attach,
    format_rules,
    parse_rules,
    ranges_enabled,
)

ON = {SWITCH_VARIABLE: "1"}
RULES = (
    RangeRule("Attention", "K3/kda"),
    RangeRule("Experts", "K3/moe"),
    RangeRule("Mlp", "K3/dense_mlp", outermost=True),
)


class Attention(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        """Doubles."""
        return x * 2 * scale


class Mlp(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return x + 1
        if x.numel() == 13:
            raise LookupError("thirteen")
        return x + 1


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(x) * 3


class Scriptable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.mlp = Mlp()
        self.experts = Experts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Past __call__, as sglang does in places: hooks would not run here.
        return self.experts(self.mlp(self.attention.forward(x)))


def recorded_ranges(model: nn.Module, x: torch.Tensor) -> list[str]:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        model(x)
    events = [event for event in profiler.events() if event.name.startswith("K3/")]
    return [event.name for event in sorted(events, key=lambda event: event.time_range.start)]


@pytest.mark.parametrize("value", [None, "", "0", "false", "OFF"])
def test_nothing_is_wrapped_while_the_switch_is_off(value: str | None) -> None:
    model = Model()
    before = {cls: cls.__dict__.get("forward") for cls in (Attention, Mlp, Experts)}
    attachment = attach(model, RULES, {} if value is None else {SWITCH_VARIABLE: value})
    assert attachment.sites == ()
    for cls, forward in before.items():
        assert cls.__dict__["forward"] is forward
    assert all("forward" not in vars(module) for module in model.modules())
    assert recorded_ranges(model, torch.ones(2)) == []


def test_an_unclear_switch_is_refused() -> None:
    with pytest.raises(RangesError, match=r"SGLANG_K3_PROF_RANGES=maybe: expected 1 or 0"):
        ranges_enabled({SWITCH_VARIABLE: "maybe"})


def test_every_named_class_runs_in_its_range_and_the_shared_expert_stays_in_the_moe() -> None:
    model, x = Model(), torch.ones(2)
    expected = model(x)
    with attach(model, RULES, ON) as attachment:
        assert {site.range_name for site in attachment.sites} == {
            "K3/kda",
            "K3/moe",
            "K3/dense_mlp",
        }
        assert recorded_ranges(model, x) == ["K3/kda", "K3/dense_mlp", "K3/moe"]
        assert torch.equal(model(x), expected)
    assert recorded_ranges(model, x) == []


def test_detach_restores_the_very_same_functions_and_can_be_called_twice() -> None:
    model = Model()
    original = Attention.__dict__["forward"]
    attachment = attach(model, RULES, ON)
    assert Attention.__dict__["forward"] is not original
    assert Attention.forward.__doc__ == "Doubles."
    attachment.detach()
    attachment.detach()
    assert Attention.__dict__["forward"] is original


def test_an_inherited_forward_is_inherited_again_after_detach() -> None:
    class Derived(Attention):
        pass

    model = nn.Sequential(Derived())
    with attach(model, (RangeRule("Derived", "K3/kda"),), ON):
        assert "forward" in Derived.__dict__
    assert "forward" not in Derived.__dict__


def test_a_forward_set_on_the_instance_is_wrapped_and_restored() -> None:
    model = Model()

    def replaced(x: torch.Tensor) -> torch.Tensor:
        return x

    model.attention.forward = replaced  # type: ignore[method-assign]
    with attach(model, RULES, ON):
        assert recorded_ranges(model, torch.ones(2))[0] == "K3/kda"
    assert vars(model.attention)["forward"] is replaced


def test_an_exception_passes_through_and_leaves_no_range_open() -> None:
    model = Model()
    with attach(model, RULES, ON):
        with pytest.raises(LookupError, match="thirteen"):
            model(torch.ones(13))
        # An open range would swallow this one: dense_mlp opens only outermost.
        assert recorded_ranges(model, torch.ones(2)) == ["K3/kda", "K3/dense_mlp", "K3/moe"]


def test_a_copy_of_the_model_takes_its_ranges_from_its_own_modules() -> None:
    model = Model()
    with attach(model, RULES, ON):
        twin = copy.deepcopy(model)
        twin.experts.shared.register_buffer("mark", torch.ones(1))
        assert recorded_ranges(twin, torch.ones(2)) == ["K3/kda", "K3/dense_mlp", "K3/moe"]


def test_a_second_attachment_is_refused_and_changes_nothing() -> None:
    model = Model()
    with attach(model, RULES, ON):
        wrapped = Attention.__dict__["forward"]
        with pytest.raises(RangesError, match="has ranges already"):
            attach(model, RULES, ON)
        assert Attention.__dict__["forward"] is wrapped


def test_a_forward_replaced_after_attaching_is_left_alone_and_named() -> None:
    model = Model()
    attachment = attach(model, RULES, ON)
    original = Attention.forward.__wrapped__  # type: ignore[attr-defined]
    try:
        Attention.forward = original  # type: ignore[method-assign]
        with pytest.raises(RangesError, match="forward of Attention was replaced"):
            attachment.detach()
        assert Attention.__dict__["forward"] is original
        assert not hasattr(Experts.forward, "__k3bench_range__")
    finally:
        Attention.forward = original  # type: ignore[method-assign]


def test_a_model_without_any_named_class_is_refused() -> None:
    with pytest.raises(RangesError, match="Sequential has no module of class KimiK3DeltaAttention"):
        attach(nn.Sequential(nn.Linear(2, 2)), K3_RULES, ON)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_scripted_module_is_refused() -> None:
    scripted = torch.jit.script(nn.Sequential(Scriptable()))
    with pytest.raises(RangesError, match="0 is scripted: attach before"):
        attach(scripted, (RangeRule("Scriptable", "K3/kda"),), ON)


def test_a_compiled_model_stays_one_graph_without_ranges_inside() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]):  # type: ignore[no-untyped-def]
        graphs.append(graph)
        return graph.forward

    model, x = Model(), torch.ones(2)
    expected = model(x)
    torch._dynamo.reset()
    with attach(model, RULES, ON):
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        assert torch.equal(compiled(x), expected)
    assert len(graphs) == 1
    assert "record_function" not in graphs[0].print_readable(print_output=False)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_traced_model_holds_no_range() -> None:
    model = Model()
    with attach(model, RULES, ON):
        traced = torch.jit.trace(model, (torch.ones(2),))
    assert "record_function" not in str(traced.inlined_graph)


def test_a_qualified_name_matches_only_its_own_module() -> None:
    assert RangeRule(f"{__name__}.Attention", "r").matches(Attention)
    assert not RangeRule("elsewhere.Attention", "r").matches(Attention)


def test_rules_survive_being_written_into_a_variable() -> None:
    assert parse_rules(format_rules(K3_RULES)) == K3_RULES


@pytest.mark.parametrize("text", ["", "KimiK3MoE", "=K3/moe", "A=r:inner", "A="])
def test_a_malformed_rule_is_refused(text: str) -> None:
    with pytest.raises(RangesError, match=r"expected Class=range"):
        parse_rules(text)


SERVER = """
    import sys
    assert "torch" not in sys.modules, "the ranges imported torch before the server did"
    import torch
    from torch import nn
    from torch.profiler import profile, ProfilerActivity

    class Base(nn.Module):
        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)

    class KimiK3MoE(Base):
        def forward(self, x):
            return x + 1

    class Other(nn.Module):
        def forward(self, x):
            return x

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        KimiK3MoE()(torch.ones(1)); Other()(torch.ones(1))
    print([event.name for event in profiler.events() if "K3/" in event.name])
    print(hasattr(KimiK3MoE.forward, "__wrapped__"), hasattr(Other.forward, "__wrapped__"))
"""


# Without torch, so that this start is quick: nothing at all may be armed.
PLAIN = """
    import os, sys
    print([type(finder).__name__ for finder in sys.meta_path if "AfterImport" in repr(finder)])
    print("k3bench_ranges" in sys.modules, "inject" in os.environ.get("PYTHONPATH", ""))
"""


def launched(tmp_path: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "server.py"
    script.write_text(textwrap.dedent(text))
    environment = {k: v for k, v in os.environ.items() if k != SWITCH_VARIABLE} | variables
    command = [sys.executable, "-m", "k3bench.attribution.live.launch", "--"]
    return subprocess.run(
        [*command, sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_launched_server_gets_ranges_around_its_classes_as_they_are_defined(
    tmp_path: Path,
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('hidden sitecustomize ran')\n")
    done = launched(tmp_path, SERVER, **{SWITCH_VARIABLE: "1", "PYTHONPATH": str(hidden)})
    assert done.returncode == 0, done.stderr
    # The launcher's own interpreter runs the hidden file too, before the server's does.
    hidden_ran = ["hidden sitecustomize ran"] * 2
    assert done.stdout.splitlines() == [*hidden_ran, "['K3/moe']", "True False"]
    assert "range K3/moe around __main__.KimiK3MoE" in done.stderr


def test_a_launched_server_is_left_alone_while_the_switch_is_off(tmp_path: Path) -> None:
    done = launched(tmp_path, PLAIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "False False"]
    assert "ranges: off" in done.stderr


def test_a_worker_spawned_by_the_server_is_armed_too(tmp_path: Path) -> None:
    spawning = """
        import subprocess, sys
        print("k3bench_ranges" in sys.modules)
        code = "import sys; print('k3bench_ranges' in sys.modules)"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    """
    done = launched(tmp_path, spawning, **{SWITCH_VARIABLE: "1"})
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_the_launch_environment_is_unchanged_while_the_switch_is_off() -> None:
    assert launch.launch_environment({"PYTHONPATH": "a"}) == {"PYTHONPATH": "a"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], launch.USAGE, "no command given"),
        (["--rule", "nonsense", "--", "true"], launch.USAGE, "expected Class=range"),
        (["--", "no-such-command-here"], launch.NO_INPUT, "no such command"),
    ],
    ids=["no-command", "bad-rule", "missing-command"],
)
def test_the_launcher_refuses_with_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main(arguments) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_forward_that_is_no_function_is_reported_and_left_alone() -> None:
    lines: list[str] = []

    class Callable_:  # noqa: N801
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    class Odd(nn.Module):
        forward = Callable_()

    kept = Odd.__dict__["forward"]
    ranges._wrap_new_class(Odd, (RangeRule("Odd", "K3/moe"),), lines.append)
    assert Odd.__dict__["forward"] is kept
    assert "no function" in lines[0]
