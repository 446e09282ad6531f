"""Settings of the MLA tests: the real package before this folder's name, and one torch thread."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# This folder is called mla_rocm too, and its parent is on the import path: without the project
# root before it, ``import mla_rocm`` would find this folder, as an empty namespace package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


if os.environ.get("TRITON_INTERPRET") == "1":
    from interpreted_sglang import replace_aliases

    replace_aliases()


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread() -> Iterator[None]:
    """Tests on a shared machine: threads that wait for a busy core make small products 40x slower.

    Shapes here are too small to gain from a second thread.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
