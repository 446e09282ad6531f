"""Alembic migrations of the ledger: one file per schema change in versions/, applied on opening."""
