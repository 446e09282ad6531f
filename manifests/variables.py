"""Which environment variables a manifest keeps, and how secrets and places are taken out of them.

Three nets: only names on the allow-list are kept at all; a name that sounds like a secret loses its
value; and within a value, anything shaped like a credential is replaced. Paths become relative to
"~" or "<project>", and of any other absolute path only the last part stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

REDACTED = "<redacted>"

_EXACT = (
    *("LD_PRELOAD", "GLIBC_TUNABLES", "TF_XLA_FLAGS", "NVIDIA_TF32_OVERRIDE"),
    *("ATEN_CPU_CAPABILITY", "ALLOW_MULTIPLE_LIBTPU_LOAD"),
    *("PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHON_GIL", "PYTHON_JIT"),
)
_PREFIXES = (
    *("XLA_", "JAX_", "TPU_", "LIBTPU_", "TRITON_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_"),
    *("HIP_", "HSA_", "ROCR_", "ROCM_", "AMD_", "GPU_", "RCCL_", "HIPBLASLT_", "ROCBLAS_"),
    *("CUDA_", "CUBLAS_", "NCCL_", "AITER_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "DNNL_", "ONEDNN_"),
    *("MALLOC_", "TCMALLOC_", "MIMALLOC_"),
)
# How this suite was asked to run; kept apart, since each record carries what matters of it.
_SETTINGS_PREFIX = "K3BENCH_"
# Where things are reached says nothing about their speed, and may say too much.
_NEVER = re.compile(r"_(DB|DATABASE|DSN|URL|URI|HOSTNAMES?|ADDRESS(ES)?)(_|$)")

_SECRET_WORDS = r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|BEARER|SIGNATURE"
_SECRET_NAME = re.compile(_SECRET_WORDS, re.I)

# Shapes of credentials, most specific first. Each keeps what stands around the secret.
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|$)", re.S), REDACTED),
    # scheme://user:password@host: up to the last @, for a password may hold any character.
    (re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)\S*@"), rf"\1{REDACTED}@"),
    # The query of a URL may carry a signature under any name.
    (re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s?#]*[?#])[^\s\"']+"), rf"\1{REDACTED}"),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',;]+", re.I), rf"\1 {REDACTED}"),
    # --api-key=..., password: ..., "token": "...": a name, a separator, the value.
    (
        re.compile(
            rf"([\w.-]*(?:{_SECRET_WORDS}|\bPWD\b)[\w.-]*[\"']?\s*[=:]\s*)"
            r"(\"[^\"]*\"|'[^']*'|[^\s\"',;&]+)",
            re.I,
        ),
        rf"\1{REDACTED}",
    ),
    # Prefixes by which providers mark their tokens.
    (
        re.compile(
            r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|pk-|xox[abeprs]-|AKIA|ASIA|AIza|ya29\."
            r"|npm_|pypi-|dckr_pat_|eyJ)[\w.~+/=-]{8,}"
        ),
        REDACTED,
    ),
)
# Opaque: long, unbroken, of all three classes. Identifiers of devices are long too, but are UUIDs.
_OPAQUE = re.compile(r"[A-Za-z0-9+_=-]{24,}")
_UUID = re.compile(r"(?:MIG-|GPU-)*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)

# With an authority: file:///... and the like are paths of this machine.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s,;\"'/][^\s,;\"']*")
# Where a path may start: not within a relative one, but also glued to -I, -L or -B.
_START = r"(?:(?<![\w.~>/])|(?<=-[ILB]))"
_ABSOLUTE = re.compile(_START + r"/[^\s:;,\"'=|]*")


def read_variables(
    environ: Mapping[str, str], places: Mapping[Path, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The kept variables, cleaned: (what may change a timing, how this suite was asked to run).

    `places` maps directories to the symbols that replace them, e.g. the home directory to "~".
    """
    kept: dict[str, str] = {}
    settings: dict[str, str] = {}
    for name, value in sorted(environ.items()):
        if _NEVER.search(name):
            continue
        if name.startswith(_SETTINGS_PREFIX):
            settings[name] = clean(name, value, places)
        elif name in _EXACT or name.startswith(_PREFIXES):
            kept[name] = clean(name, value, places)
    return kept, settings


def clean(name: str, value: str, places: Mapping[Path, str]) -> str:
    """One variable's value without secrets and without this machine's places."""
    if _SECRET_NAME.search(name):
        return REDACTED
    return hide_places(hide_secrets(value), places)


def hide_secrets(value: str) -> str:
    """The text with everything that is shaped like a credential replaced by "<redacted>"."""
    for pattern, replacement in _SHAPES:
        value = pattern.sub(replacement, value)
    return _OPAQUE.sub(lambda match: REDACTED if _is_opaque(match[0]) else match[0], value)


def _is_opaque(run: str) -> bool:
    return (
        _UUID.fullmatch(run) is None
        and re.search(r"[a-z]", run) is not None
        and re.search(r"[A-Z]", run) is not None
        and len(re.findall(r"\d", run)) >= 2
    )


def hide_places(value: str, places: Mapping[Path, str]) -> str:
    """The text with no absolute path of this machine in it; URLs stay as they are."""
    # The longer first: a project usually lies below the home directory.
    for place, symbol in sorted(places.items(), key=lambda item: -len(str(item[0]))):
        if place != Path(place.anchor):
            value = re.sub(rf"{_START}{re.escape(str(place))}(?![\w.-])", symbol, value)
    parts: list[str] = []
    end = 0
    for url in _URL.finditer(value):
        parts += [_ABSOLUTE.sub(_last_part, value[end : url.start()]), url.group(0)]
        end = url.end()
    return "".join([*parts, _ABSOLUTE.sub(_last_part, value[end:])])


def _last_part(match: re.Match[str]) -> str:
    return f"<path>/{match.group(0).rstrip('/').rpartition('/')[2]}"
