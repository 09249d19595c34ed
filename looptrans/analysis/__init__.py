"""isl facts: dependences, the graph and its components, loop verdicts, claims.

asked from outside        api, kept_flow, budget, annotate, explanation, statements
a program as isl sees it  model, shapes, normal, linear, digits, constraints, formula, polyhedra,
                          instances, inequalities
dependences               dependences, relation, flow, accessed, last_writers, dataflow, decided,
                          truths, lookups, pieces, witness, sources
opaque terms              opaque, opaque_domains, axioms, contract_forms, supposed
graph and loops           graph, loops, reductions, iterations, judge
is a step legal           judging, multiples, equivalence, correspondence, one_iteration,
                          stages, comparison, same, reversals, interference, between, killing,
                          observed, spare, grown, reassociation, verdicts
parallel programs         concurrency, races
ranges of loops           bounds, scan, ends, coarse, inside, subscripts
"""
