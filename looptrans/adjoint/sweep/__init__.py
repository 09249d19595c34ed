"""The reverse sweep: adjoints of definitions, from those of what reads them.

the sweep                 reverse, added_up
of one value              pulling, derivatives, rounding
made simpler              simplifying, in_parts, vanishing
"""
