"""The ranges of loops, and whether subscripts stay inside.

loops that change places  bounds, scan, ends, inequalities
subscripts                subscripts, inside
where less is enough      coarse
"""
