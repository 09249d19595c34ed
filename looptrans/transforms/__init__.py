"""Program to Step, one transformation a file; every one is judged by the checkers of analysis.

Rooms import only what stands above them here, as pyproject.toml lays down; each has a map of its
own.

to edit a nest            editing
judged                    judging
rows of sequences         rows
loops over blocks         over_blocks
by name                   steps
moved by derivations      moved
as a person writes them   catalogue, script, mistakes
"""
