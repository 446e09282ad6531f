"""The ledger's one exception: a line that says what is wrong, where, and how to mend it."""

from typing import Literal

Reason = Literal["usage", "missing", "unavailable", "data", "schema"]


class LedgerError(ValueError):
    """Something the ledger refuses.

    ``reason`` sorts it for exit codes: ``usage`` (a wrong URL, pattern or argument), ``missing``
    (no such ledger), ``unavailable`` (locked, read-only, no driver, server away), ``data`` (a
    record, a manifest or the file itself is malformed), ``schema`` (made by a newer version).
    ``transient`` says that the same call may succeed in a moment: a server that restarts, a
    deadlock, another writer that came first.
    """

    def __init__(self, message: str, reason: Reason = "data", *, transient: bool = False) -> None:
        super().__init__(" ".join(message.split()))
        self.reason: Reason = reason
        self.transient = transient
