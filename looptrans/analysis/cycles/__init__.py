"""The dependence graph, its components, and what they say of loops and claims.

the graph                 graph
loops                     loops, iterations, reductions
claims                    judge
"""
