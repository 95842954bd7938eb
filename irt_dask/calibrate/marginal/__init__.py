"""Marginal maximum likelihood."""
