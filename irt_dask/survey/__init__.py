"""Published statistics: groups' means, spreads and percentiles under complex sampling.

Replicate weights (:mod:`replicates`), tables of any size a batch at a time (:mod:`tables`), what is
read of them (:mod:`plan`), sums that statistics are made of (:mod:`sums`, :mod:`statistics`), what
several plausible values say together (:mod:`combine`), and what comes out: tables of groups and of
gaps between them (:mod:`tabulate`, :mod:`gaps`), regressions (:mod:`regress`; :mod:`least_squares`,
:mod:`logistic`), and changes between two tables (:mod:`trend`, :mod:`linking`).
"""
