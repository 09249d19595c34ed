"""Nests of a backward listing, and their text.

what a nest is            nests, asking, standing
what it reads             again, inside_arrays, wide
its text                  printing, as_listing
"""
