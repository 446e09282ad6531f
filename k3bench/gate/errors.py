"""The gate's one exception: a comparison that cannot even be started."""


class GateError(ValueError):
    """A comparison that makes no sense as asked: one line, with the mend.

    ``usage`` is true where the question is at fault (a wrong name), false where the ledger lacks
    what it takes to answer.
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(" ".join(message.split()))
        self.usage = usage
