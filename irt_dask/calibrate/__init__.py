"""Calibration: one module per method, each a person step plus an item step on the engine."""
