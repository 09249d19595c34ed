"""The loop-nest intermediate representation; nothing here imports a third-party package.

a program                 program, domain, outputs, named, listing
what stands in it         index, affine, ranges, quotients, condition, value, functions,
                          creation, monoids
where it comes from       source, claim
going through it          walk, rewrite, alike, branches, evaluate, remember
what is said of it        facts, rising, operator, verdict, step, diagnostic
"""
