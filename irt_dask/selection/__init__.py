"""Totals over a set of questions from answers to some, and which questions to ask."""
