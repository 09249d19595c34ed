"""Lowering one kernel: loops, guards and statements become operations on blocks.

the state of lowering     builder, scopes
what is known of values   order, magnitude, finite, in_front
loops                     nest, runs, ends
statements                statements, appending, running, picked, units, shapes
values                    values, sums, contraction, operands
"""
