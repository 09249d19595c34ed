"""Exact dependences of annotated loop nests, and the kernels that follow from them.

Importing the package loads nothing else; the folders below it are imported by name.
"""

__version__ = "0.1.0"
