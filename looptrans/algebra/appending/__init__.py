"""A block of iterations taken into a running state at once.

whether it may be         append, append_laws
its form                  appended, append_state, scanned, affine
"""
