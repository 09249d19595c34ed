"""Recurrences and what they allow: combine operators, laws, fusion, certificates.

The only folder that imports sympy. What goes in and what comes out are IR values over positional
names (`s1` a state variable, `x1` an input of an iteration, `p1` a number that stays the same), so
no name of the listing can decide anything here.
"""
