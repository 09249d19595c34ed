"""What fits a GPU: which sizes of blocks are tried, and what they need.

sizes of blocks           configs
memory and registers      footprint, strain, whole_rows
"""
