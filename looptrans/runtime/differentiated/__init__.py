"""A listing's gradients as torch's autograd finds them.

the whole                 reference
how it runs               machine, values, sums, store
"""
