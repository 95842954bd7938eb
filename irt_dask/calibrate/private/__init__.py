"""Differentially private fits and their ledger."""
