"""Distributions of ability: what they say of the persons of a block, and how they are estimated."""
