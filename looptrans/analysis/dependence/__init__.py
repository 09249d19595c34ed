"""Dependences: which instances touch the same cell, and who reads what whom wrote.

the whole                 dependences
found                     flow, dataflow, accessed, last_writers, sources
tests of data             decided, truths, lookups
cut into pieces           pieces, directions
"""
