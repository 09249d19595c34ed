"""Recurrences and what they allow: combine operators, laws, fusion, certificates.

The only folder that imports sympy. What goes in and what comes out are IR values over positional
names (`s1` a state variable, `x1` an input of an iteration, `p1` a number that stays the same), so
no name of the listing can decide anything here.

what values are           values, trees, cells, bound, inputs
one iteration, on symbols iteration, held, edges, assembly, recurrence, order, branches
iterations without state  free
is it equal               normal, terms, signs, atoms, numbers, ordering, possible, multiplied,
                          readable, one_order
what is no number         infinities
what may be a mask        makeup
combine operators         search, tried, draft, extrema, scaled_sums, own_step, matrices,
                          operator, laws, weights, conjugation, refusal, finding
other forms of a loop     closed, change_of_state, fusion, separable
a block at once           append, append_laws, append_state, appended
elements of blocks        one_by_one, named_blocks, block_steps, block_laws, gathered,
                          written_step
derivatives               derivatives
kept and proved again     certificate
"""
