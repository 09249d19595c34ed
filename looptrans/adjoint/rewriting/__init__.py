"""A listing seen more simply, as derivations of both passes begin.

all of them               simpler, work
names and words           own_names, webs, alike, written_alike, same_iterations,
                          same_names
statements                set_at_once
loops                     order, within, along_rows, few_iterations, repetitions, guarded_cells,
                          cells_in_steps, mirrored, unread
folds                     first_terms, last_terms, inner_sums, row_parts, gathered
weights                   divided, weights_apart
what is looked up         looked_up, table_rows, tabulated
largest of what is made   extremes, extents, attaining, spelled
"""
