"""The version, apart from the package so that any folder may name it."""

__version__ = "0.1.0"
