"""Whether a rewritten program may stand for the one it came from.

the questions             equivalence, reassociation, races
which instance is which   correspondence, one_iteration, stages, same
where values come from    comparison, interference, between, reversals, observed
instances added           spare, grown
parallel loops            concurrency
verdicts                  judging, verdicts, multiples, explanation
"""
