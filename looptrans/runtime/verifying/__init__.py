"""Emitted kernels of both passes against the listing.

the whole                 verify, backward, split, verification
inputs and sizes          inputs, sizes, numbers, search, work, divided
calls, watched            call, memory, traffic, traffic_watch
how far off               errors, nearby, rounded, handed_over
gradients                 gradient_run, gradients, differences
"""
