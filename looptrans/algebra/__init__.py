"""Recurrences and what they allow: combine operators, laws, fusion, certificates.

The only folder that imports sympy. What goes in and what comes out are IR values over positional
names (`s1` a state variable, `x1` an input of an iteration, `p1` a number that stays the same), so
no name of the listing can decide anything here.

Rooms import only what stands above them here, as pyproject.toml lays down; each has a map of its
own.

values by position        positional
is it equal               normal_forms
what loops carry          iterations
combine operators         operators
other forms of a loop     other_states
kept and proved again     certificate
a block at once           appending
elements of blocks        elements
iterations without state  free
what may be a mask        makeup
derivatives               derivatives
"""
