"""Loops over grids, or over several things in turn, as one loop over a row.

grids                     over_grids, coalesced, grids
one after the other       in_turn, continued
"""
