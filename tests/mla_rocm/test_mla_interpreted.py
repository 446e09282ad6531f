"""Runs the shared test bodies again, on the Triton kernels in Triton's interpreter."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Tests that must have run and passed in each module: a filter that drops them all is a failure.
LEAST_PASSED = {
    "test_mla_decode": 27,
    "test_mla_prefill": 50,
    "test_kda_decode": 12,
    "test_mla_stages": 7,
    "test_mla_int64": 2,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") == "1", reason="this session is the interpreted one"
    ),
]


@pytest.fixture(scope="module")
def passed(tmp_path_factory) -> Counter:
    """Passed tests by module, of a process of its own.

    Triton decides how to run its kernels when it is first imported.
    """
    pytest.importorskip("triton")
    report = tmp_path_factory.mktemp("interpreted") / "junit.xml"
    modules = [str(HERE / f"{module}.py") for module in LEAST_PASSED]
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
            *("--junitxml", str(report), *modules),
        ],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-2000:]
    return Counter(
        case.attrib["classname"].rsplit(".", 1)[-1]
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("skipped") is None
    )


@pytest.mark.parametrize("module", LEAST_PASSED)
def test_the_triton_kernels_pass_the_shared_bodies_in_the_interpreter(module, passed):
    assert passed[module] >= LEAST_PASSED[module]
