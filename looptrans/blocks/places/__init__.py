"""Where arrays live while a kernel runs.

each array                stored, storage
cells of registers        cells, common_lanes
slices as arrays          slices, whole_arrays
"""
