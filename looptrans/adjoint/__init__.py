"""Reverse mode: the backward pass of a listing, as a listing."""
