"""What kernels are made of: values, operations, kernels.

values                    expr, arithmetic, identities, integers
operations                ops
kernels                   program
to be read                text
"""
