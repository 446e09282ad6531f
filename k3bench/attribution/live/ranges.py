"""Profiler ranges around a decoder's cost centres, attached from outside by class name.

A range is a ``torch.profiler.record_function`` around a module's ``forward``. The switch is the
environment variable SGLANG_K3_PROF_RANGES: while it is off, nothing is wrapped at all. Two ways in:

``attach(model)``                      wraps the classes of a model that exists, until ``detach``
``wrap_classes_when_defined(rules)``   wraps a class the moment it is defined, for a server process
                                       that we do not construct ourselves (see ``launch``)

``forward`` is wrapped instead of hooked, because sglang also calls ``module.forward(...)`` past
``__call__``, where hooks do not run; and on the class, so that copies of a module take the range
along. This file imports nothing of ours and no torch until a class is wrapped: every Python process
of a launched server loads it by its path.
"""

import functools
import importlib.machinery
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType, TracebackType
from typing import Any

SWITCH_VARIABLE = "SGLANG_K3_PROF_RANGES"
RULES_VARIABLE = "K3BENCH_RANGE_RULES"

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"", "0", "false", "no", "off"})
_MARK = "__k3bench_range__"
_MISSING = object()
# Where torch defines nn.Module; the hook goes in right after this module has run.
_MODULE_OF_NN_MODULE = "torch.nn.modules.module"
_open_ranges = threading.local()


class RangesError(ValueError):
    """The ranges could not be attached or removed; the message says what to mend."""


@dataclass(frozen=True)
class RangeRule:
    """Modules of class ``class_name`` run inside a range called ``range_name``.

    ``class_name`` is the class's ``__name__``, or ``package.module.Class`` where the bare name is
    not enough. ``outermost``: no range when another of ours is open on this thread. K3's dense MLP
    needs that: the same class also serves as the shared expert inside the MoE.
    """

    class_name: str
    range_name: str
    outermost: bool = False

    def matches(self, cls: type) -> bool:
        if "." in self.class_name:
            return f"{cls.__module__}.{cls.__qualname__}" == self.class_name
        return cls.__name__ == self.class_name


# The classes of sglang's models/kimi_k3.py and models/kimi_linear.py.
K3_RULES: tuple[RangeRule, ...] = (
    RangeRule("KimiK3DeltaAttention", "K3/kda"),
    RangeRule("KimiK3MLAAttention", "K3/full_attn"),
    RangeRule("KimiK3MoE", "K3/moe"),
    RangeRule("KimiK3MLP", "K3/dense_mlp", outermost=True),
    RangeRule("KimiDeltaAttention", "K3/kda"),
    RangeRule("KimiMLAAttention", "K3/full_attn"),
    RangeRule("KimiMoE", "K3/moe"),
    RangeRule("KimiMLP", "K3/dense_mlp", outermost=True),
)


@dataclass(frozen=True)
class RangeSite:
    """One place that was wrapped: a class, or a module with a ``forward`` of its own."""

    class_name: str
    range_name: str


def ranges_enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether SGLANG_K3_PROF_RANGES asks for ranges. Raises RangesError for an unclear value."""
    value = (os.environ if environ is None else environ).get(SWITCH_VARIABLE, "").strip().lower()
    if value in _ON:
        return True
    if value in _OFF:
        return False
    raise RangesError(f"{SWITCH_VARIABLE}={value}: expected 1 or 0")


def parse_rules(text: str) -> tuple[RangeRule, ...]:
    """Rules written as ``Class=range`` or ``Class=range:outermost``, separated by commas."""
    rules = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        class_name, equals, rest = item.partition("=")
        range_name, _, flag = rest.partition(":")
        if not (equals and class_name.strip() and range_name.strip() and flag in ("", "outermost")):
            raise RangesError(f"range rule {item!r}: expected Class=range or Class=range:outermost")
        rules.append(RangeRule(class_name.strip(), range_name.strip(), flag == "outermost"))
    if not rules:
        raise RangesError("no range rule given: expected Class=range, e.g. KimiK3MoE=K3/moe")
    return tuple(rules)


def format_rules(rules: Iterable[RangeRule]) -> str:
    """The inverse of ``parse_rules``."""
    return ",".join(
        f"{rule.class_name}={rule.range_name}{':outermost' if rule.outermost else ''}"
        for rule in rules
    )


class Attachment:
    """The wrapped places; leaving the ``with`` block, or ``detach``, restores every one.

    ``sites`` is empty where the switch is off.
    """

    def __init__(self) -> None:
        self._restores: list[tuple[Any, Any, Any]] = []  # owner, its own forward before, wrapper
        self.sites: tuple[RangeSite, ...] = ()

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.detach()

    def detach(self) -> None:
        """Take the ranges off again; a second call does nothing.

        Raises RangesError, with the other places restored, if somebody replaced one of the wrapped
        forwards in the meantime: putting the old one back would undo their change.
        """
        lost = []
        while self._restores:
            owner, before, wrapper = self._restores.pop()
            if vars(owner).get("forward") is not wrapper:
                lost.append(_class_of(owner).__name__)
            elif before is _MISSING:
                delattr(owner, "forward")
            else:
                owner.forward = before
        self.sites = ()
        if lost:
            raise RangesError(
                f"forward of {', '.join(lost)} was replaced after the ranges were attached: "
                "detach before changing it"
            )

    def _wrap(self, owner: Any, rule: RangeRule) -> None:
        before = vars(owner).get("forward", _MISSING)
        wrapper = _ranged(owner.forward, rule)
        owner.forward = wrapper
        self._restores.append((owner, before, wrapper))
        self.sites = (*self.sites, RangeSite(_class_of(owner).__name__, rule.range_name))


def attach(
    model: Any,
    rules: Sequence[RangeRule] = K3_RULES,
    environ: Mapping[str, str] | None = None,
) -> Attachment:
    """Put ranges around the modules of a torch model whose class a rule names.

    ``model``: a torch.nn.Module; every instance of the named classes gets the range, also those
    outside this model. While SGLANG_K3_PROF_RANGES is off this touches nothing.

    Raises:
        RangesError: no class of the model is named by a rule, one is scripted, or one has ranges.
    """
    attachment = Attachment()
    if not ranges_enabled(environ):
        return attachment
    try:
        for owner, rule in _owners(model, rules):
            attachment._wrap(owner, rule)
    except BaseException:
        attachment.detach()
        raise
    if not attachment.sites:
        raise RangesError(
            f"{type(model).__name__} has no module of class "
            f"{', '.join(rule.class_name for rule in rules)}: name its classes in the rules"
        )
    return attachment


def _owners(model: Any, rules: Sequence[RangeRule]) -> Iterable[tuple[Any, RangeRule]]:
    """What to wrap: each matched class once, and each module that overrides ``forward`` itself."""
    import torch

    seen: set[type] = set()
    for name, module in model.named_modules():
        cls = type(module)
        rule = next((rule for rule in rules if rule.matches(cls)), None)
        if isinstance(module, torch.jit.ScriptModule):
            original = getattr(module, "original_name", cls.__name__)
            if any(each.class_name == original for each in rules):
                raise RangesError(f"{name or original} is scripted: attach before scripting it")
        if rule is None:
            continue
        if "forward" in vars(module):
            _require_no_range(vars(module)["forward"], cls)
            yield module, rule
        elif cls not in seen:
            seen.add(cls)
            _require_no_range(vars(cls).get("forward"), cls)
            if getattr(cls.forward, _MARK, None) != rule.range_name:  # inherited with its range
                yield cls, rule


def _require_no_range(forward: Any, cls: type) -> None:
    if hasattr(forward, _MARK):
        raise RangesError(f"{cls.__name__} has ranges already: detach them first")


def _class_of(owner: Any) -> type:
    return owner if isinstance(owner, type) else type(owner)


def _ranged(forward: Callable[..., Any], rule: RangeRule) -> Callable[..., Any]:
    """``forward`` inside its range; the range closes when ``forward`` raises, too.

    While torch.compile or torch.jit.trace looks through the call there is no range: it would break
    the graph, or end up inside it. During the capture of a CUDA or HIP graph the range is open (it
    is host work and puts nothing into the graph), which is what pairs a capture with its replay.
    """
    import torch

    record_function = torch.profiler.record_function
    is_compiling, is_tracing = torch.compiler.is_compiling, torch.jit.is_tracing
    range_name, outermost = rule.range_name, rule.outermost

    @functools.wraps(forward)
    def ranged(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or is_tracing():
            return forward(*args, **kwargs)
        depth = getattr(_open_ranges, "depth", 0)
        if outermost and depth:
            return forward(*args, **kwargs)
        _open_ranges.depth = depth + 1
        try:
            with record_function(range_name):
                return forward(*args, **kwargs)
        finally:
            _open_ranges.depth = depth

    setattr(ranged, _MARK, range_name)
    return ranged


def wrap_classes_when_defined(
    rules: Sequence[RangeRule], report: Callable[[str], None] | None = None
) -> None:
    """From now on, wrap every nn.Module subclass that a rule names as soon as it is defined.

    Torch need not be imported yet, and is not imported by this. ``report`` gets a line per class.
    """
    loaded = sys.modules.get(_MODULE_OF_NN_MODULE)
    if loaded is not None and hasattr(loaded, "Module"):
        _watch_subclasses(loaded.Module, rules, report)
        return
    sys.meta_path.insert(
        0, _AfterImport(_MODULE_OF_NN_MODULE, lambda m: _watch_subclasses(m.Module, rules, report))
    )


def _watch_subclasses(
    base: Any, rules: Sequence[RangeRule], report: Callable[[str], None] | None
) -> None:
    before = vars(base).get("__init_subclass__")

    def watch(cls: type, /, **kwargs: Any) -> None:
        if before is not None:
            before.__func__(cls, **kwargs)
        else:
            super(base, cls).__init_subclass__(**kwargs)
        _wrap_new_class(cls, rules, report)

    base.__init_subclass__ = classmethod(watch)


def _wrap_new_class(
    cls: Any, rules: Sequence[RangeRule], report: Callable[[str], None] | None
) -> None:
    rule = next((rule for rule in rules if rule.matches(cls)), None)
    if rule is None:
        return
    own = vars(cls).get("forward", cls.forward)
    where = f"{cls.__module__}.{cls.__qualname__}"
    if not inspect.isfunction(own):
        if report is not None:
            report(f"no range around {where}: its forward is a {type(own).__name__}, no function")
        return
    if hasattr(own, _MARK):  # an inherited forward that has its range from the base class
        return
    cls.forward = _ranged(own, rule)
    if report is not None:
        report(f"range {rule.range_name} around {where}")


class _AfterImport(MetaPathFinder):
    """Runs a function on one module, once, right after its code has run."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenLoader(spec.loader, self._then)
        return spec


class _ThenLoader(Loader):
    """The module's own loader, followed by a function on the module."""

    def __init__(self, loader: Any, then: Callable[[Any], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # get_source and the like, for tracebacks
