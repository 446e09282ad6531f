"""Why a report cannot be written."""


class ReportError(ValueError):
    """The ledger or the project lacks what a report is made of."""
