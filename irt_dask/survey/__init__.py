"""Published statistics: groups' means, spreads and percentiles under complex sampling.

Replicate weights (:mod:`replicates`), tables of any size a batch at a time (:mod:`tables`), sums
that statistics are made of (:mod:`sums`), what several plausible values say together
(:mod:`combine`), and the table that comes out (:mod:`tabulate`).
"""
