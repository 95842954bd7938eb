"""Concurrent calibration of many groups: one scale, items that work otherwise in some freed."""
