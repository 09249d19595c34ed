"""Attention listings built from options: what one would write by hand, put together from pieces.

    text = compose(Options(causal=True, window_left=GIVEN, softcap=30.0))

What comes out is a text like any other listing; nothing that reads it knows where it came from.
"""

from looptrans.variants.compose import Composed, compose
from looptrans.variants.conflicts import Conflict
from looptrans.variants.options import GIVEN, Options

__all__ = ["GIVEN", "Composed", "Conflict", "Options", "compose"]
