"""Block programs rewritten, each into one that computes the same: most of them faster.

exponentials              exponents, quotients, masks, unseen
factors and constants     outside, behind, constants
integers                  integers
products                  late, handed_on
loads and stores          described, flipped, covered, overwritten
rows of the grid          groups, balance
shared and plain          sharing, conditions
"""
