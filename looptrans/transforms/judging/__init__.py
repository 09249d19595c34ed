"""The end of every transformation: what it made is judged by analysis, or tried.

by analysis               check, contributions
by numbers                refuting, trial, other_writes
"""
