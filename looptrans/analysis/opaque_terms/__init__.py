"""Terms that isl knows nothing of: integer arrays in bounds, guards and subscripts.

dependences               opaque, opaque_domains, killing
what is known of them     axioms, contract_forms
at given sizes            instances, supposed
"""
