"""Program to Step, one transformation a file; every one is judged by the checkers of analysis.

by name                   catalogue, script, errors, mistakes, advice
order of loops            interchange, permute, reverse, skew, tile, strip_mine, distribute, fuse,
                          hoist
where values are kept     privatize, expand, promote
parallel loops            parallelize, split, partials, ordered_atomics, phased_atomics, phases,
                          block_reduce
judged                    check, contributions, refuting, trial, other_writes
what all of them need     tree, nest, band, scan, substitute, finish, naming, accesses, privacy,
                          named_numbers, guards, extents, any_products
loops a derivation moves  outward, values_inward, guards_inward, whole_loops, shift, segments,
                          bounded, known_iterations
loops over blocks         block_passes, block_places, block_starts, one_element, without_places
guards                    ends_asked, guarded_ends, guarded_rows, guarded_starts, idle_guards
one form for one idea     powers, one_cell
extents of arrays         fitting, anew, laid_out
"""
