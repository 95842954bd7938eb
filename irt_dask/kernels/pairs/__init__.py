"""Pairs of items: counts, random pairs, Bradley-Terry, conditional likelihood."""
