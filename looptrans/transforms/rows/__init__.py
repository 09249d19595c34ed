"""Rows that are divided among sequences, and the guards and loops that go over them.

rows of sequences         segments, shift, bounded
guards of loops           ends_asked, guarded_ends, guarded_rows, guarded_starts, idle_guards
"""
