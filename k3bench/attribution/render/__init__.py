"""Showing compositions: the published CSV layout, a self-contained page, an annotated trace."""
