"""The dashboard: kernel pages made of the ledger, beside asv's own explorer, all of them offline.

    from k3bench.dashboard.build import build
    build(ledger, Path("html/k3bench"), repository=root)

``asv publish`` builds them through ``publisher``, ``k3bench dashboard`` without asv's results.
Nothing is imported here: asv loads the publisher for every command.
"""
