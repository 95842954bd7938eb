"""Fit of items and persons: predictions, residuals, scores, replicates."""
