"""The transformations that a person calls by name.

order of loops            interchange, permute, reverse, skew, tile, strip_mine, distribute,
                          fuse, hoist
where values are kept     privatize, expand, promote
parallel loops            parallelize, split, partials, ordered_atomics, phased_atomics, phases,
                          block_reduce
what to do instead        advice
"""
