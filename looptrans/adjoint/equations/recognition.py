"""Sums that are stored already, found again inside larger ones.

    rule        O[i, d] = sum(P[i, j] * V[j, d] for j)
    in a term   sum(P[i, j] * V[j, d] * dO[i, d] for j for d)  ->  sum(O[i, d] * dO[i, d] for d)

That a product distributes over a sum lets the sum over j be done first, by whatever the term's
factors without j are. A rule applies where the factors and brackets with the summed variables are
those of the rule, all of them, the ranges are the same, and what the rule is given holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from looptrans.adjoint.equations.definitions import Definition, is_same_range
from looptrans.adjoint.equations.sums import Term, bracketed, term_moved, times
from looptrans.algebra.positional.cells import condition_moved, range_moved
from looptrans.ir.affine import is_same
from looptrans.ir.condition import Condition
from looptrans.ir.index import Arith, Index, Int, Neg, Opaque, Param, Var, substitute, variables
from looptrans.ir.value import (
    Access,
    Call,
    Generator,
    IndexValue,
    Range,
    Read,
    Real,
    Value,
    condition_variables,
    free_variables,
    walk_value,
)

_INDICES = (Int, Var, Param, Arith, Neg, Opaque)


@dataclass(frozen=True, slots=True)
class Rule:
    """`sum(pattern for generators) = result`, for all values of the free variables.

    Attributes:
        name: The definition it comes from.
        variables: The variables it holds for all values of.
        generators: What is summed over.
        pattern: The factors with the summed variables, the coefficient 1.
        result: What the sum is.
        given: What has to hold for that, without the summed variables.
    """

    name: str
    variables: tuple[str, ...]
    generators: tuple[Generator, ...]
    pattern: Term
    result: Term
    given: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """`atom = result`, for all values of the free variables."""

    name: str
    variables: tuple[str, ...]
    atom: Value
    result: Term


def rule_of(
    name: str,
    cell: Value,
    indices: tuple[str, ...],
    term: Term,
    nonzero: frozenset[str] = frozenset(),
) -> Rule | None:
    """Return the rule that a stored sum of a single product gives.

    What would have to be divided by, `g[i]` of `sum(P[i, j] * g[i] * V[j, d] for j)`, is a factor
    of what is looked for, unless it is known not to be 0.

    Args:
        name: The definition.
        cell: The cell the sum is stored in.
        indices: The variables of its indices.
        term: The sum.
        nonzero: Arrays that may be divided by.
    """
    bound = term.bound
    inside = tuple((a, p) for a, p in term.factors if set(free_variables(a)) & bound)
    outside = [(a, p) for a, p in term.factors if (a, p) not in inside]
    within = tuple(c for c in term.brackets if condition_variables(c) & bound)
    given = tuple(c for c in term.brackets if c not in within)
    if not inside:
        return None
    bare = Term(1 / term.coefficient, ((cell, 1),))
    if divides(bare, nonzero):
        return None
    inverse = [(a, -p) for a, p in outside if not divides(Term(Fraction(1), ((a, -p),)), nonzero)]
    beside = tuple((a, p) for a, p in outside if (a, -p) not in inverse)
    result = times(bare, Term(Fraction(1), tuple(inverse)))
    pattern = Term(Fraction(1), (*inside, *beside), within, term.generators)
    return Rule(name, indices, term.generators, pattern, result, given)


def divides(term: Term, nonzero: frozenset[str]) -> bool:
    """Tell whether a product divides by something that may be zero where it is used.

    Sizes are not zero where anything runs over them; the arrays of `nonzero` are sums of
    exponentials.
    """
    return any(
        p < 0
        and not isinstance(a, IndexValue)
        and not (isinstance(a, Call) and not _reads(a))
        and not (isinstance(a, Read) and a.access.array in nonzero)
        for a, p in term.factors
    )


def _reads(value: Value) -> bool:
    return any(isinstance(part, Read | Real) for part in walk_value(value))


def applied(term: Term, rule: Rule) -> Term | None:
    """Return a term with one sum recognized, or None where the rule does not apply."""
    own = {g.variable: g for g in term.generators}
    wanted = tuple(g.variable for g in rule.generators)
    if len(wanted) > len(own) or len(rule.pattern.factors) > len(term.factors):
        return None
    for bound in _matches(list(rule.pattern.factors), list(term.factors), rule, {}):
        taken = [bound.get(name) for name in wanted]
        names = [t.name for t in taken if isinstance(t, Var) and t.name in own]
        if len(names) != len(wanted) or len(set(names)) != len(names):
            continue
        if any(name not in bound for name in rule.variables):
            continue
        gone = set(names)
        # What the cell's subscripts are may not be summed over in the same sum.
        if any(set(variables(bound[name])) & gone for name in rule.variables):
            continue
        if not _same_ranges(rule, own, names, bound):
            continue
        matched = [(_moved(a, bound), p) for a, p in rule.pattern.factors]
        left = [(a, p) for a, p in term.factors if (a, p) not in matched]
        if len(left) != len(term.factors) - len(matched):
            continue
        if any(set(free_variables(a)) & gone for a, _ in left):
            continue
        needed = set(term_moved(rule.pattern, bound).brackets)
        with_gone = {c for c in term.brackets if condition_variables(c) & gone}
        if needed != with_gone:
            continue
        if any(condition_moved(c, bound) not in term.brackets for c in rule.given):
            continue
        kept = tuple(g for g in term.generators if g.variable not in gone)
        if any(g.range.variables & gone for g in kept):
            continue
        rest = Term(
            term.coefficient,
            tuple(left),
            tuple(c for c in term.brackets if c not in with_gone),
            kept,
        )
        result = term_moved(rule.result, bound)
        return bracketed(times(rest, replace(result, brackets=())), *result.brackets)
    return None


def rewritten(term: Term, identities: list[Identity]) -> tuple[Term, list[str]]:
    """Replace the atoms of a term by what identities say they are; return whose were used."""
    found = replace(term, factors=())
    used = []
    for atom, exponent in term.factors:
        result: Term | None = None
        for identity in identities:
            bound: dict[str, Index] = {}
            if unify(identity.atom, atom, frozenset(identity.variables), bound) and all(
                name in bound for name in identity.variables
            ):
                result = term_moved(identity.result, bound)
                used.append(identity.name)
                break
        if result is None:
            found = times(found, Term(Fraction(1), ((atom, exponent),)))
            continue
        powered = Term(
            result.coefficient**exponent,
            tuple((a, p * exponent) for a, p in result.factors),
            result.brackets,
        )
        found = times(found, powered)
    return found, used


def _moved(atom: Value, bound: dict[str, Index]) -> Value:
    return term_moved(Term(Fraction(1), ((atom, 1),)), bound).factors[0][0]


def _matches(
    patterns: list[tuple[Value, int]],
    factors: list[tuple[Value, int]],
    rule: Rule,
    bound: dict[str, Index],
) -> Iterator[dict[str, Index]]:
    """Yield every way to read the pattern's factors as different factors of the term."""
    if not patterns:
        yield bound
        return
    free = frozenset((*rule.variables, *(g.variable for g in rule.generators)))
    (pattern, exponent), *rest = patterns
    for number, (factor, own) in enumerate(factors):
        if own != exponent:
            continue
        trial = dict(bound)
        if unify(pattern, factor, free, trial):
            others = factors[:number] + factors[number + 1 :]
            yield from _matches(rest, others, rule, trial)


def _same_ranges(
    rule: Rule, own: dict[str, Generator], names: list[str], bound: dict[str, Index]
) -> bool:
    for generator, name in zip(rule.generators, names, strict=True):
        mine, theirs = own[name].range, generator.range
        if mine.step != theirs.step:
            return False
        for a, b in ((mine.start, theirs.start), (mine.stop, theirs.stop)):
            if not is_same(a, substitute(b, bound)):
                return False
    return True


def read_instead(made: Definition, value: Value, scope: Mapping[str, Range]) -> Read | None:
    """Return the cell that has a value; None where it is none of what a definition works out.

    Args:
        made: The definition.
        value: The value.
        scope: The ranges of the variables around it, which are to be those of the definition.
    """
    bound: dict[str, Index] = {}
    if not unify(made.value, value, frozenset(made.variables), bound):
        return None
    for g in made.indices:
        index = bound.get(g.variable)
        known = scope.get(index.name) if isinstance(index, Var) else None
        if known is None or not is_same_range(known, range_moved(g.range, bound)):
            return None
    return Read(Access(made.name, tuple(bound[name] for name in made.variables)))


def unify(pattern: object, value: object, free: frozenset[str], bound: dict[str, Index]) -> bool:
    """Bind the free variables of a pattern so that it becomes a value, where that is possible."""
    if isinstance(pattern, Var) and pattern.name in free and isinstance(value, _INDICES):
        known = bound.get(pattern.name)
        if known is None:
            bound[pattern.name] = value
            return True
        return is_same(known, value)
    if type(pattern) is not type(value):
        return False
    if isinstance(pattern, tuple) and isinstance(value, tuple):
        return len(pattern) == len(value) and all(
            unify(a, b, free, bound) for a, b in zip(pattern, value, strict=True)
        )
    if dataclasses.is_dataclass(pattern) and dataclasses.is_dataclass(value):
        return all(
            unify(getattr(pattern, f.name), getattr(value, f.name), free, bound)
            for f in dataclasses.fields(pattern)
            if f.compare
        )
    return pattern == value and type(pattern) is type(value)
