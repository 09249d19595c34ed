"""Whether two values are equal: normal forms, proved, refuted, or unknown.

the question              normal
normal forms              terms, atoms, multiplied
what is known             signs, ordering, possible
back as values            readable
"""
