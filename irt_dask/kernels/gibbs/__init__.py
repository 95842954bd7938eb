"""The grid sampler: draws of abilities and of items."""
