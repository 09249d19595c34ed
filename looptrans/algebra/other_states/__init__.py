"""The same results from another state, and several reductions in one pass.

another state             change_of_state
one pass                  fusion, separable
"""
