"""What a loop carries from one iteration to the next, read from its body.

one iteration, on symbols iteration, held, edges, inputs
recurrences               recurrence, assembly, order, one_order
choices and infinities    branches, infinities
in one form               powers_added
"""
