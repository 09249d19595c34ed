"""What iterations hand on, through arrays or in totals.

through arrays            handed, states, whole_rows
totals                    by_rows, scattered
"""
