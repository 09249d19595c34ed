"""Emitted kernels and what else the user could call, timed side by side.

the whole                 bench, plan, results
what is timed             sizes, flops, iterations
what torch has            others, recipe, search
the GPU                   machine
"""
