"""What calibration methods share: counts and start values, the climb, groups, linkage."""
