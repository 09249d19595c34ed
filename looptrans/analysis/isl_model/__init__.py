"""A program as isl sees it.

statements and accesses   model, shapes, constraints, digits
index expressions         normal, linear
isl objects               formula, polyhedra, relation
the smallest example      witness
"""
