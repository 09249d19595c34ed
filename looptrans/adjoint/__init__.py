"""Reverse mode: the backward pass of a listing, as a listing.

`one_derivation` goes through the steps; what it meets on the way, in that order:

what equations are        definitions, sums, written_sums, facts, refusal
seen more simply          simpler, order, bound_names, alike, written_alike, within, first_terms,
                          last_terms, row_parts, own_names, divided, weights_apart, attaining,
                          gathered, few_iterations, guarded_cells, along_rows
made ready for reading    lets, given_numbers, digits, whole_digits, row_products, lengths,
                          packed, views, taken_back, choices, one_form, picking, named_tests,
                          tightening, cancelling, running
a listing as equations    read, reading, state, rows, versions, resolving, accumulating, targets
loops of more than sums   closing, closed_nodes, nested_folds, kept_values,
                          carrying
equations put in order    known_choices, equal, finite, apart, together, shared_terms, offered
softmax and its kin       weights, totals, statistics, tops, logarithms, hanging
rows that see nothing     guards, empty, idle, nothing
adjoints                  reverse, added_up, pulling, derivatives, rounding, piecewise, solving,
                          in_range
largest of what is made   spelled, extremes, extents, unread
through time              handed_on, set_in_steps, summed_steps, states_kept, recurrences,
                          in_time, through_time
adjoints made simpler     simplifying, recognition, in_parts, vanishing
what is kept in memory    size, made_whole, saving
the backward listing      writing, again, nests, inside_arrays, standing, printing
the whole, with proofs    backward, derived, one_derivation, proofs
"""
