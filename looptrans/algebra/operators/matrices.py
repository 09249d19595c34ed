"""Several variables, each affine in all of them: matrices, joined by their products."""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from looptrans.algebra.iterations.recurrence import StateVariable
from looptrans.algebra.normal_forms.atoms import Expr
from looptrans.algebra.normal_forms.readable import factored, value_of
from looptrans.algebra.operators.draft import Draft
from looptrans.algebra.operators.operator import Component
from looptrans.algebra.positional.values import ONE, ZERO, add, multiply, put
from looptrans.ir.value import Real, Value


def matrices(draft: Draft, group: tuple[StateVariable, ...]) -> bool:
    """Take variables that are affine in all of them."""
    terms = draft.terms
    names = [state.name for state in group]
    zero: dict[str, Value] = dict.fromkeys(names, ZERO)
    matrix: list[list[Expr]] = []
    rests: list[Expr] = []
    for state in group:
        form = terms.normal(state.update)
        rest = terms.normal(put(state.update, zero))
        row = [
            terms.reduced(terms.normal(put(state.update, {**zero, name: ONE})) - rest)
            for name in names
        ]
        whole = sum((f * terms.normal(Real(n)) for f, n in zip(row, names, strict=True)), rest)
        if not terms.is_zero(form - whole) or not all(map(draft.free, (*row, rest))):
            return draft.no(state, f"{', '.join(names)} are not affine in each other")
        matrix.append(row)
        rests.append(rest)
    varying = _varying_entries(matrix)
    entry: dict[tuple[int, int], int] = {}
    first = len(draft.components) + 1
    for offset, place in enumerate(sorted(varying)):
        entry[place] = first + offset

    def at(letter: str, i: int, j: int) -> Value:
        if (i, j) in entry:
            return Real(f"{letter}{entry[i, j]}")
        return value_of(matrix[i][j], terms)

    size = range(len(names))
    for i, j in sorted(varying):
        joined = add(*(multiply(at("b", i, k), at("a", k, j)) for k in size))
        draft.components.append(
            Component(
                None,
                f"how {names[i]} at the end depends on {names[j]} at the beginning",
                factored(matrix[i][j], terms),
                joined,
                ONE if i == j else ZERO,
            )
        )
    for i, state in enumerate(group):
        number = len(draft.components) + 1

        def build(
            left: Mapping[str, Value],
            new: Mapping[str, Value],
            i: int = i,
            number: int = number,
        ) -> Value:
            del new
            moved = [multiply(at("b", i, j), left[names[j]]) for j in size]
            return add(*moved, Real(f"b{number}"))

        draft.where.update({n: first + len(varying) + k for k, n in enumerate(names)})
        component = Component(state.name, "a vector, affine", factored(rests[i], terms), ZERO, ZERO)
        draft.keep(state, component, build)
    return True


def _varying_entries(matrix: list[list[Expr]]) -> set[tuple[int, int]]:
    """Return the entries that products of such matrices do not leave as they are."""
    size = range(len(matrix))
    varying = {(i, j) for i in size for j in size if matrix[i][j] != (1 if i == j else 0)}
    while True:
        entries = [
            [sympy.Symbol(f"v{i}_{j}") if (i, j) in varying else matrix[i][j] for j in size]
            for i in size
        ]
        others = [
            [sympy.Symbol(f"u{i}_{j}") if (i, j) in varying else matrix[i][j] for j in size]
            for i in size
        ]
        more = {
            (i, j)
            for i in size
            for j in size
            if (i, j) not in varying
            and sympy.expand(sum(entries[i][k] * others[k][j] for k in size) - matrix[i][j]) != 0
        }
        if not more:
            return varying
        varying |= more
