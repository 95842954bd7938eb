"""The posterior of one ability on a grid: tables, moments, draws, counts, estimates."""
