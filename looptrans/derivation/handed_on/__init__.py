"""What iterations hand on, through arrays or in totals.

through arrays            handed, states, own_part, row_by_row, whole_rows
totals                    by_rows, scattered
"""
