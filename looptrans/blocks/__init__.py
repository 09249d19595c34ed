"""A scheduled nest as operations on blocks.

the block IR              expr, ops, program, text, shapes, arithmetic, identities
from a nest to kernels    lower, kernel_groups, kernel_arguments, builder, scopes, nest, grid,
                          reach, serial, unit_steps, covered, in_front
where arrays live         sites, stored, storage, cells, common_lanes, overwritten
statements and values     statements, values, sums, chains, contraction, operands, slices,
                          whole_arrays, appending, picked, tested_sums, bottom,
                          handed_on
what a loop visits        ranges, solving, ends, order, lifting, masked, runs
rows that share a block   groups, balance
loops in parts            parts
made faster               exponents, quotients, unseen, masks, units, magnitude, outside, finite,
                          late, described, flipped, sharing, conditions, constants, behind,
                          scalar_form
what fits a GPU           configs, footprint, strain, whole_rows
"""
