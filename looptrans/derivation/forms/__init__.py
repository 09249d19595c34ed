"""One form for one idea.

choices                   selects, masks, opaque_tests
loops of one iteration    at_most_once, nothing_seen
arrays                    versions
one cell a statement      one_target, scalar_form
"""
