"""Joint maximum likelihood: modes of abilities, persons on an axis, maxima of items."""
