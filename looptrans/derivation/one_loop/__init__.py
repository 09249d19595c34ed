"""A loop written anew: its recurrence, in blocks, in parts, from the empty prefix on.

read and written          bodies, reading, writing, loop, joining
the empty prefix          guard, guards
another state             state, logarithms
blocks and parts          blocks, digits, pieces, parts, two_nests
"""
