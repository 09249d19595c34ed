"""Derivations: a listing taken, by named and proved steps, to a nest that can be run fast.

A step is either an ordinary transformation (`looptrans.transforms`, judged by the analysis) or an
algebraic one, written here from what `looptrans.algebra` finds and proves. Whoever rewrote the
nest, the loop is read again afterwards, and what it now computes is held against what was proved.

Rooms import only what stands above them here, as pyproject.toml lays down; each has a map of its
own.

what a step is            step
a loop written anew       one_loop
one form for one idea     forms
several loops as one      joined
several loops as a row    as_a_row
handed on by iterations   handed_on
no algebra needed         ordinary
the steps by name         backward, moves, work, order
which steps, in order     rows_added, in_states, passes_joined, nests_joined, together, in_rows,
                          derive
as JSON                   saved
"""
