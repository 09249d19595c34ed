"""isl facts: dependences, the graph and its components, loop verdicts, claims.

Rooms import only what stands above them here, as pyproject.toml lays down; each has a map of its
own. Other folders ask `api`.

within a budget           budget
contracts leaned on       leaning
statements in reports     statements
a program as isl sees it  isl_model
opaque terms              opaque_terms
ranges of loops           ranges
dependences               dependence
graph and loops           cycles
is a step legal           legality
asked from outside        annotate, api, kept_flow
"""
