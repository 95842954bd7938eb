"""Columns: which is what, and what their values mean."""
