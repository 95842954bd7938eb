"""Posteriors of shards together: barycenter and diagnostics."""
