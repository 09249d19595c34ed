"""Loops over blocks and over what is inside of each.

where blocks are          block_starts, block_places, counted_blocks
passes over a block       block_passes, one_element, without_places
one loop instead          whole_loops, fitting
"""
