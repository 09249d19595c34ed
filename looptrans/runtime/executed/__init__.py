"""The listing itself, executed with NumPy: what kernels are compared with.

the whole                 reference
faster                    parted, summed, terms_kept
rows that see nothing     empty_rows
"""
