"""Environment variables: only the allowed ones stay, and no secret and no place gets through."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.variables import REDACTED, hide_places, hide_secrets, read_variables

PLACES = {Path("/home/ada"): "~", Path("/home/ada/k3bench"): "<project>"}

ALLOWED = st.sampled_from(["XLA_FLAGS", "LIBTPU_INIT_ARGS", "TRITON_X", "HIP_Y", "K3BENCH_NOTE"])
WORDS = string.ascii_letters + string.digits
# Opaque texts as key generators make them: long, and of all classes.
SECRETS = st.text(WORDS, min_size=12, max_size=40).map(lambda text: "aZ42" + text + "Qq77xxYY")


def kept(environ: dict[str, str]) -> dict[str, str]:
    variables, settings = read_variables(environ, PLACES)
    return variables | settings


@given(
    name=st.sampled_from(
        [
            *("TRITON_API_KEY", "JAX_TOKEN", "XLA_Secret", "NCCL_PASSWORD", "TPU_CREDENTIALS"),
            *("K3BENCH_AUTH", "HIP_PASSPHRASE", "CUDA_SIGNATURE", "OMP_COOKIE_JAR"),
        ]
    ),
    value=st.text(min_size=1),
)
def test_a_name_that_sounds_like_a_secret_loses_its_value_whole(name: str, value: str) -> None:
    assert kept({name: value}) == {name: REDACTED}


@given(
    name=ALLOWED,
    secret=SECRETS,
    shape=st.sampled_from(
        [
            "{}",
            "--flag=1 --api_key={} --other=2",
            "password: {}",
            '{{"token": "{}"}}',
            "https://ada:{}@example.org/x",
            "postgresql+psycopg://ada:p/{}@db:5432/k3",
            "https://example.org/model?X-Sig={}",
            "Authorization: Bearer {}",
            "hf_{}",
            "ghp_{}",
            "github_pat_{}",
            "AKIA{}",
            "sk-{}",
            "glpat-{}",
            "eyJhbGciOi.{}.sig",
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
            "--xla_dump_to=/tmp/{}",
        ]
    ),
)
def test_no_secret_gets_through_in_a_value(name: str, secret: str, shape: str) -> None:
    assert secret not in kept({name: shape.format(secret)})[name]


@given(st.text())
def test_hiding_secrets_twice_changes_nothing_more(value: str) -> None:
    once = hide_secrets(value)
    assert hide_secrets(once) == once


UNLISTED = st.sampled_from(
    [
        *("PATH", "HOME", "USER", "HOSTNAME", "PWD", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH"),
        *("HF_TOKEN", "HF_HOME", "AWS_SECRET_ACCESS_KEY", "PIP_INDEX_URL", "PYTHONPATH"),
        *("XLA", "JAX", "MYXLA_FLAGS", "xla_flags", "k3bench_preset", "GITHUB_TOKEN"),
    ]
)


@given(st.dictionaries(UNLISTED | st.text(min_size=1).map("Q".__add__), st.text()))
def test_a_variable_that_is_not_on_the_list_is_not_kept(environ: dict[str, str]) -> None:
    assert kept(environ) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("K3BENCH_DB", "K3BENCH_TEST_DB_URL", "JAX_STORE_URI"),
        *("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES", "JAX_COORDINATOR_ADDRESS"),
    ],
)
def test_where_things_are_reached_is_not_kept_even_without_a_password(name: str) -> None:
    assert kept({name: "db.example.org:5432"}) == {}


def test_settings_of_the_suite_are_kept_apart_from_what_may_change_a_timing() -> None:
    environ = {"K3BENCH_PRESET": "smoke", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    variables, settings = read_variables(environ, PLACES)
    assert variables == {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    assert settings == {"K3BENCH_PRESET": "smoke"}


@pytest.mark.parametrize(
    "value",
    [
        "--xla_tpu_scoped_vmem_limit_kib=65536 --xla_jf_vmem_max_outer_dim=-1",
        "GPU-8f6c0d3e-1B2c-4d5e-8f90-0A1b2C3d4E5f,MIG-GPU-8f6c0d3e-1b2c-4d5e-8f90-0a1b2c3d4e5f",
        "granularity=fine,compact,1,0",
        "990e6a0b84138346e6a38785412f36356e0e5dc3",
        "https://example.org/docs",
    ],
    ids=["flags", "device-uuids", "affinity", "commit", "plain-url"],
)
def test_what_is_no_secret_stays_as_it_is(value: str) -> None:
    assert hide_places(hide_secrets(value), PLACES) == value


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("/home/ada/k3bench/x.so", "<project>/x.so"),
        ("/home/ada/cache", "~/cache"),
        ("--xla_dump_to=/home/ada", "--xla_dump_to=~"),
        ("/home/adalbert/cache", "<path>/cache"),
        ("/mnt/home/ada/cache", "<path>/cache"),
        ("/usr/lib/libtcmalloc.so.4:/opt/x.so", "<path>/libtcmalloc.so.4:<path>/x.so"),
        ("-I/usr/include -L/opt/rocm-7.0/lib", "-I<path>/include -L<path>/lib"),
        ("file:///srv/data/f", "file:<path>/f"),
        ("relative/path a/b", "relative/path a/b"),
        ("/", "<path>/"),
    ],
)
def test_of_a_path_only_what_is_not_this_machine_stays(value: str, hidden: str) -> None:
    assert hide_places(value, PLACES) == hidden


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", " ", ":", "=", ",", "-I", '"', "x=", "@"]),
            st.lists(st.text(WORDS + "._-", min_size=1), min_size=1, max_size=4),
        ),
        min_size=1,
    )
)
def test_no_absolute_path_gets_through(parts: list[tuple[str, list[str]]]) -> None:
    value = " ".join(before + "/" + "/".join(steps) for before, steps in parts)
    hidden = hide_places(value, PLACES)
    without_symbols = hidden.replace("<path>/", "").replace("~/", "").replace("<project>/", "")
    assert "/" not in without_symbols
