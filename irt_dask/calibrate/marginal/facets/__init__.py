"""Facets of marginal fits: what raters, positions and the like add to difficulty."""
