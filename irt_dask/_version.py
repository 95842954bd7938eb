"""The version of the package; everything it writes carries it."""

__version__ = "0.1.0"
