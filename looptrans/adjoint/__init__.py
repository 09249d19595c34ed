"""Reverse mode: the backward pass of a listing, as a listing.

Rooms import only what stands above them here, as pyproject.toml lays down; each has a map of its
own. `one_derivation` goes through the steps.

why there is none         refusal
what equations are        equations
softmax and its kin       exponentials
rows that see nothing     empty_rows
adjoints of equations     sweep
nests that come out       written
through loops and time    carried
made ready for reading    normalizing
a listing seen otherwise  rewriting, layouts
a listing as equations    reading
the backward listing      saving, writing, hanging
the whole, with proofs    proofs, derived, one_derivation, through_time, seen_back, backward
"""
