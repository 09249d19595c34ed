"""What derivations of both passes move, and write in one form.

loops                     outward, known_iterations
what is between loops     values_inward, guards_inward
extents of arrays         anew, laid_out
one form for one idea     powers, one_cell
"""
