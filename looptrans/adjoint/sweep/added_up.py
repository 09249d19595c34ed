"""Sums over the same that are added up, as one sum.

    sum(a[i, e] * U[e] for e) + sum(b[i, f] * V[f] for f)  ->  S[i]
        S[i] = sum(a[i, e] * U[e] + b[i, e] * V[e] for e)

So what several readers give an adjoint is worked out, and kept in memory, once.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from looptrans.adjoint.equations.definitions import Definition, refreshed_generators
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.sums import Term, mentioned, term_moved, times
from looptrans.adjoint.equations.written_sums import in_order, value_of_products
from looptrans.adjoint.sweep.simplifying import outside
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.index import Var
from looptrans.ir.value import Access, Read, Reduce

if TYPE_CHECKING:
    from looptrans.adjoint.sweep.reverse import Reverse


def summed_alike(reverse: Reverse, terms: list[Term], name: str, like: Definition) -> list[Term]:
    """Make definitions of sums over the same.

    Args:
        reverse: The definitions, and what is known of them.
        terms: The terms of an adjoint.
        name: What it is called.
        like: The definition that it is the adjoint of.

    Returns:
        The terms, of which no two sum over the same.
    """
    if any(f.kind == "contraction" and f.of == name for f in reverse.found):
        return terms
    facts = Facts().inside(like.indices)
    groups: dict[object, list[Term]] = {}
    for each in terms:
        known = reverse.simplifier.by_rule(each, facts, name) if each.generators else None
        term = known or each
        key: object = term
        if term.generators and known is None:
            around = outside(term)
            own = _numbered(replace(term, generators=in_order(term.generators)))
            rest = frozenset(around.factors), frozenset(around.brackets)
            mine = frozenset(mentioned(term)) & set(like.variables)
            key = (tuple(g.range for g in own.generators), rest, mine)
        groups.setdefault(key, []).append(term)
    found: list[Term] = []
    for alike in groups.values():
        found += alike if len(alike) == 1 else [_added_up(reverse, alike, name, like)]
    return found


def _added_up(reverse: Reverse, terms: list[Term], name: str, like: Definition) -> Term:
    """Make a definition of sums over the same, as one sum; return its cell."""
    around = replace(outside(terms[0]), coefficient=Fraction(1))
    bare = [
        replace(
            term,
            factors=tuple(f for f in term.factors if f not in around.factors),
            brackets=tuple(c for c in term.brackets if c not in around.brackets),
            generators=in_order(term.generators),
        )
        for term in terms
    ]
    ordered, new = refreshed_generators(bare[0].generators, reverse.names)
    own = [term_moved(replace(bare[0], generators=()), new)]
    for term in bare[1:]:
        here = {g.variable: Var(o.variable) for g, o in zip(term.generators, ordered, strict=True)}
        own.append(term_moved(replace(term, generators=()), here))
    mine = {name for term in own for name in mentioned(replace(term, generators=ordered))}
    indices = tuple(g for g in like.indices if g.variable in mine)
    body = value_of_products(own, [g.variable for g in indices])
    cells, moved = refreshed_generators(indices, reverse.names)
    total = value_moved(Reduce("sum", ordered, body), moved)
    known = reverse.names.array(f"{name}_sum")
    reverse.system.add(Definition(known, cells, total, "adjoint", like.label))
    cell = Read(Access(known, tuple(Var(g.variable) for g in indices)))
    return times(around, Term(Fraction(1), ((cell, 1),)))


def _numbered(term: Term) -> Term:
    """Return a term whose generators are called by their places."""
    names = {g.variable: f"#{number}" for number, g in enumerate(term.generators)}
    moved = term_moved(term, {old: Var(new) for old, new in names.items()})
    return replace(
        moved, generators=tuple(replace(g, variable=names[g.variable]) for g in term.generators)
    )
