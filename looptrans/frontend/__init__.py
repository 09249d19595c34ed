"""Listing text to Program; parses, never executes."""

from looptrans.frontend.parse import load, parse

__all__ = ["load", "parse"]
