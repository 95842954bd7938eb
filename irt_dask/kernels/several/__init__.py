"""Several abilities: sums over a plane, and the Polya-Gamma sampler."""
