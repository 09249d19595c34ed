"""A listing made ready for reading, statement by statement.

integers and numbers      lets, given_numbers, cancelling
choices and tests         choices, one_form, named_tests, picking
ranges                    tightening
sums that are read        running
"""
