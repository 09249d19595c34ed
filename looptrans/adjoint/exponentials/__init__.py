"""Sums of exponentials: softmax and its kin.

what they are             totals, tops
weights made of them      weights, statistics, logarithms
loops that go on          carrying
shared by several         shared_terms
"""
