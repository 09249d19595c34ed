"""Values over positional names, the cells they are of, and their numbers.

values                    values, trees, bound, bound_names
cells                     cells
numbers                   numbers
"""
