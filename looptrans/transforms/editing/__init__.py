"""What every transformation needs of the tree it edits.

the tree                  tree, band, accesses, own_scalars, extents
edits                     substitute, naming, guards, privacy, finish
what stays true           scan, named_numbers, any_products
wrong arguments           errors
"""
