"""Rows that see nothing: guards against them, and what they get.

where there is nothing    nothing
guards                    guards, idle, empty
"""
