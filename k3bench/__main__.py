"""``python -m k3bench``: the same as the ``k3bench`` command."""

from k3bench.cli import main

main()
