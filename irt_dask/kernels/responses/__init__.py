"""Responses of a block: layouts in memory, rows, counts, bits, sets of items."""
