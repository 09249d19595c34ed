"""A listing as equations, and what is known of them.

what they are             definitions, sums, written_sums
what holds where          facts, finite, in_range, solving
put in order              known_choices, equal, apart, together, offered, piecewise
found again               recognition
what is kept in memory    size, made_whole
"""
