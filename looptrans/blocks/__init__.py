"""A scheduled nest as operations on blocks.

Rooms import only what stands above them here, as pyproject.toml lays down; each has a map of its
own. `lower` goes the whole way.

what kernels are made of  block_ir
a nest before lowering    scheduled
where arrays live         places
from nests to blocks      lowering
kernels made faster       passes
what fits a GPU           fitting
the whole                 kernel_arguments, lower, parts
"""
