"""Combine operators: searched for in the step of a recurrence, and proved by their laws.

what they are             operator, laws, closed
the search                search, draft, finding
kinds of steps            scaled_sums, extrema, own_step, conjugation, matrices, weights
when there is none        drawn, refusal, tried
"""
