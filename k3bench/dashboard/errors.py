"""Why the dashboard's pages cannot be made."""


class DashboardError(ValueError):
    """What is wrong, where, and how to mend it, in one line."""
