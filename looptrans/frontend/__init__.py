"""Listing text to Program; parses, never executes.

the whole                 reader, choice, parse, scope
comments                  comments, claims, labels, placement
seen as something else    skips, counted
names, before reading     names, usage, operands, annotations, elements, ranks, extents, helpers
from syntax to the tree   syntax, statements, assignments, creations, values, indices, affine,
                          conditions, contracts
parallel listings         privates, sections, updates
what is checked as well   aliases, row_lengths, appearance
refused                   mistakes, remedies
"""

from looptrans.frontend.parse import load, parse

__all__ = ["load", "parse"]
