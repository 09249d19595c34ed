"""What iterations hand on: sums, states and recurrences.

added to what is there    accumulating
found                     handed_on, looked_at, recurrences
made ready                summed_steps, set_in_steps, states_kept
their order               in_time, parts_apart
"""
