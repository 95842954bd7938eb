"""Calibration: a room for each method, a person step plus an item step on the engine."""
