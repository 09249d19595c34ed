"""A scheduled nest, read and made ready before it is lowered.

nests to kernels          kernel_groups, grid, serial
its arrays                sites, reach
ranges and guards         ranges, solving, lifting, masked, bottom
sums and steps            chains, scaled, tested_sums, unit_steps
"""
