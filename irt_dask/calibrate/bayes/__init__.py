"""Posteriors of items: samplers, shards, their barycenter."""
