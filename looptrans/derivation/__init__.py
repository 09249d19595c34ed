"""Derivations: a listing taken, by named and proved steps, to a nest that can be run fast.

A step is either an ordinary transformation (`looptrans.transforms`, judged by the analysis) or an
algebraic one, written here from what `looptrans.algebra` finds and proves. Whoever rewrote the
nest, the loop is read again afterwards, and what it now computes is held against what was proved.
"""
