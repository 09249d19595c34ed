"""Arrays seen with other dimensions than they have: packed rows, and subscripts of digits.

packed rows               packed, views, taken_back, lengths
written by digits         digits, whole_digits, row_products, block_ends
"""
