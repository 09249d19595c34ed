"""A listing read as equations.

statement by statement    reading, state, targets, resolving, versions, rows
loops of more than sums   closing, closed_nodes, nested_folds, kept_values,
                          folds_in_place
the whole                 read
"""
