"""What iterations hand on, through arrays or in totals, and steps that need no algebra.

ordinary steps            ordinary
through arrays            handed, states, whole_rows
totals                    by_rows, scattered
"""
