"""Derivations: a listing taken, by named and proved steps, to a nest that can be run fast.

A step is either an ordinary transformation (`looptrans.transforms`, judged by the analysis) or an
algebraic one, written here from what `looptrans.algebra` finds and proves. Whoever rewrote the
nest, the loop is read again afterwards, and what it now computes is held against what was proved.

what a step is            step, moves, saved
which steps, in order     derive, work, order, backward
no algebra needed         ordinary, handed, states, in_states, whole_rows, flows, buffers,
                          gathering, with_atomics, scattered
one form for one idea     selects, masks, at_most_once, nothing_seen, loops_as_sums, versions,
                          opaque_tests
totals                    by_rows
several loops as one      made_one, passes, one_pass, side_by_side, one_nest, nests, apart, sharing,
                          worked_out_again, kept_nests, merged, together
several loops as a row    over_grids, coalesced, grids, in_turn, own_scalars, in_rows, continued
a loop written anew       loop, bodies, state, blocks, digits, parts, two_nests, joining, reading,
                          writing
the empty prefix          guard, guards
"""
