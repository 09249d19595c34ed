"""Several loops and nests as one, and which of them are worth it.

loops                     made_one, side_by_side, loops_as_sums
passes                    passes, one_pass, apart
nests                     nests, one_nest, merged, sharing, gathering, with_atomics
what nests hand over      flows, buffers, kept_nests, worked_out_again
"""
