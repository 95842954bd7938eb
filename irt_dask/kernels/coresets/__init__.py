"""Coresets: sensitivities of persons, weighted draws, complexity."""
