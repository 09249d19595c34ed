"""isl facts: dependences, the graph and its components, loop verdicts, claims."""
