"""Absent providers say so; sglang's functions are found where each release keeps them."""

import sys
import types

import pytest

from mla_rocm import (
    DECODE_IMPLEMENTATIONS,
    KDA_DECODE_IMPLEMENTATIONS,
    PREFILL_IMPLEMENTATIONS,
    KdaDecodeCase,
    MlaDecodeCase,
    MlaPrefillCase,
)
from mla_rocm.providers import sglang_kernels

PROVIDERS = {
    "decode": (DECODE_IMPLEMENTATIONS["sglang"], MlaDecodeCase((64,))),
    "extend": (PREFILL_IMPLEMENTATIONS["sglang_extend"], MlaPrefillCase((64,))),
    "kda": (KDA_DECODE_IMPLEMENTATIONS["sglang"], KdaDecodeCase(1)),
}


@pytest.mark.parametrize("platform", ["cpu", "rocm"])
@pytest.mark.parametrize("what", PROVIDERS)
def test_an_absent_sglang_is_the_reason(what, platform, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    implementation, case = PROVIDERS[what]
    support = implementation.can_run(platform, case)
    assert not support.ok and support.reason == sglang_kernels.NOT_INSTALLED


@pytest.mark.parametrize(
    ("what", "case", "reason"),
    [
        ("decode", MlaDecodeCase((5, 0)), "divides by zero"),
        ("decode", MlaDecodeCase((5,), heads=1), "another kernel"),
        ("extend", MlaPrefillCase((0,), (9,)), "no new tokens"),
    ],
    ids=["empty-context", "one-head", "no-tokens"],
)
def test_what_sglang_cannot_do_is_refused_with_the_reason(what, case, reason):
    support = PROVIDERS[what][0].can_run("rocm", case)
    assert not support.ok and reason in support.reason


@pytest.mark.parametrize("function", sglang_kernels._PLACES)
@pytest.mark.parametrize("release", [0, 1], ids=["new", "old"])
def test_a_function_is_found_where_its_release_keeps_it(function, release, monkeypatch):
    _hide_sglang(monkeypatch)
    module = types.ModuleType(sglang_kernels._PLACES[function][release])
    setattr(module, function, "the kernel")
    _install(monkeypatch, module)
    assert sglang_kernels.load.__wrapped__(function) == "the kernel"


def test_a_function_that_is_nowhere_gives_every_place_in_one_line(monkeypatch):
    _hide_sglang(monkeypatch)
    with pytest.raises(ImportError) as caught:
        sglang_kernels.load.__wrapped__("decode_attention_fwd")
    message = str(caught.value)
    assert "\n" not in message
    assert all(place in message for place in sglang_kernels._PLACES["decode_attention_fwd"])


def _hide_sglang(monkeypatch):
    """No module of sglang can be imported, installed or not."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sglang", None)


def _install(monkeypatch, module):
    """The module and its parents, as an import would leave them."""
    parts = module.__name__.split(".")
    for end in range(1, len(parts)):
        parent = types.ModuleType(".".join(parts[:end]))
        parent.__path__ = []
        monkeypatch.setitem(sys.modules, parent.__name__, parent)
    monkeypatch.setitem(sys.modules, module.__name__, module)
