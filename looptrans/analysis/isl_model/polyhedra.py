"""Domains, access relations and the schedule of a Model as isl objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import islpy as isl

from looptrans.analysis.isl_model.formula import TRUE, conjunction, disjunction
from looptrans.analysis.isl_model.model import AccessModel, Model, StatementModel
from looptrans.frontend.mistakes import BadContract
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.index import Opaque, Var, walk
from looptrans.ir.listing import contract_text
from looptrans.ir.program import Program
from looptrans.ir.value import Whole


def dimensions(statement: StatementModel, letter: str = "i") -> dict[str, str]:
    """Name the dimensions of a statement's instances: `i0`, `i1`, …, by loop variable."""
    return {bound.variable: f"{letter}{level}" for level, bound in enumerate(statement.bounds)}


def tuple_text(statement: StatementModel, letter: str = "i") -> str:
    """Write an instance of a statement: `s3[i0, i1]`."""
    inner = ", ".join(f"{letter}{level}" for level in range(statement.depth))
    return f"s{statement.number}[{inner}]"


def domain_formula(
    model: Model,
    statement: StatementModel,
    letter: str = "i",
    terms: dict[Opaque, str] | None = None,
) -> str:
    """Say which instances a statement has (over-approximated where data decides)."""
    names = dimensions(statement, letter)
    notation = model.notation(names, terms)
    parts = [notation.bounds(names[b.variable], b.range) for b in statement.bounds]
    parts.append(notation.condition(statement.condition))
    return conjunction(parts)


def cell_formula(
    model: Model,
    access: AccessModel,
    cell: Sequence[str],
    letter: str = "i",
    terms: dict[Opaque, str] | None = None,
    generators: dict[str, str] | None = None,
) -> str:
    """Say which cells an access touches; `cell` names the dimensions of the array.

    The bound variables of reductions stay free, under the names `generators` gives them.
    """
    bound = generators or {}
    notation = model.notation(dimensions(access.statement, letter) | bound, terms)
    parts = [notation.bounds(bound[g.variable], g.range) for g in access.generators]
    parts.append(notation.condition(access.condition))
    shape = model.shapes[access.array]
    for name, subscript, extent in zip(cell, access.subscripts, shape, strict=True):
        if not isinstance(subscript, Whole):
            parts.append(f"{name} = {notation.index(subscript)}")
            continue
        parts.append(f"{name} >= 0")
        if extent is not None and not any(isinstance(n, Opaque | Var) for n in walk(extent)):
            parts.append(f"{name} < {notation.index(extent)}")
    return conjunction(parts)


def access_map(model: Model, access: AccessModel, array_number: int) -> isl.Map:
    """Return the access relation of an access without opaque terms: instance to cells."""
    bare = relation_of(access_text(model, access))
    named = bare.set_tuple_name(isl.dim_type.in_, f"s{access.statement.number}")
    return named.set_tuple_name(isl.dim_type.out, f"a{array_number}")


def access_text(model: Model, access: AccessModel) -> str:
    """Write the access relation of an access, with no name for the statement and the array."""
    cell = [f"x{number}" for number in range(len(access.subscripts))]
    generators = {g.variable: f"g{number}" for number, g in enumerate(access.generators)}
    inside = cell_formula(model, access, cell, generators=generators)
    if generators:
        inside = f"exists ({', '.join(generators.values())} : {inside})"
    formula = conjunction(part for part in (domain_formula(model, access.statement), inside))
    left = ", ".join(dimensions(access.statement).values())
    return f"{model.prefix}{{ [{left}] -> [{', '.join(cell)}] : {formula} }}"


@lru_cache(maxsize=1024)
def relation_of(text: str) -> isl.Map:
    """Read a relation; statements of one block have many that differ in nothing but names."""
    return isl.Map(text)


def before(first: StatementModel, second: StatementModel, letters: tuple[str, str]) -> str:
    """Say that an instance of the first statement runs before one of the second."""
    return disjunction(conjunction(order) for order in orders(first, second, letters))


def orders(
    first: StatementModel, second: StatementModel, letters: tuple[str, str]
) -> tuple[tuple[str, ...], ...]:
    """Say in which ways an instance of the first statement runs before one of the second.

    Each way is what holds together, and no two hold at once: there is one for each loop around
    both, where the iterations of the loops around that one are the same, and one for the same
    iteration of all.
    """
    shared = first.shared_depth(second)
    options: list[tuple[str, ...]] = []
    equal: list[str] = []
    for level in range(shared):
        a, b = f"{letters[0]}{level}", f"{letters[1]}{level}"
        sign = "<" if first.bounds[level].range.step > 0 else ">"
        options.append((*equal, f"{a} {sign} {b}"))
        equal.append(f"{a} = {b}")
    if first.order[shared] < second.order[shared] and not first.excludes(second):
        options.append(tuple(equal))
    return tuple(options)


def between(
    first: StatementModel,
    middle: StatementModel,
    last: StatementModel,
    letters: tuple[str, str, str],
    way: tuple[str, ...],
) -> str:
    """Say that an instance of a statement runs between two others.

    Args:
        first: The statement of the one that runs first.
        middle: The statement.
        last: The statement of the one that runs last.
        letters: What the variables of the three are called by.
        way: One of the `orders` in which the first runs before the last.
    """
    a, b, c = letters
    return disjunction(
        conjunction([*one, *other])
        for one in orders(first, middle, (a, b))
        for other in orders(middle, last, (b, c))
        if all(map(_follows, one, other, way))
    )


def _follows(one: str, other: str, both: str) -> bool:
    """Tell whether `s = u` and `u < t`, of one loop, leave room for `s < t`."""
    signs = {one.split()[1], other.split()[1]} - {"="}
    return {both.split()[1]} == (signs or {"="})


def union_of(maps: Iterable[isl.Map], model: Model) -> isl.UnionMap:
    """Join access relations; the parameters stay those of the model."""
    result = isl.UnionMap(f"{model.prefix}{{ }}")
    for each in maps:
        result = result.union(each.to_union_map())
    return result


def order_map(model: Model, first: StatementModel, second: StatementModel) -> isl.Map:
    """Map an instance of the first statement to all later instances of the second."""
    formula = before(first, second, ("s", "t"))
    left, right = (
        ", ".join(dimensions(statement, letter).values())
        for statement, letter in ((first, "s"), (second, "t"))
    )
    bare = relation_of(f"{model.prefix}{{ [{left}] -> [{right}] : {formula} }}")
    named = bare.set_tuple_name(isl.dim_type.in_, f"s{first.number}")
    return named.set_tuple_name(isl.dim_type.out, f"s{second.number}")


def schedule_map(model: Model, statements: Iterable[StatementModel]) -> isl.UnionMap:
    """Return the order of execution: instance to time, all times of one length.

    Time alternates between the place among siblings and the loop variable, which is negated
    where the loop counts down. Every statement given is in it, and no two instances share a time,
    which isl relies on and does not check.
    """
    chosen = list(statements)
    deepest = max((statement.depth for statement in chosen), default=0)
    parts = []
    for statement in chosen:
        time = [str(statement.order[0])]
        for level, bound in enumerate(statement.bounds):
            sign = "-" if bound.range.step < 0 else ""
            time += [f"{sign}i{level}", str(statement.order[level + 1])]
        time += ["0"] * (2 * deepest + 1 - len(time))
        parts.append(f"{tuple_text(statement)} -> [{', '.join(time)}]")
    return isl.UnionMap(f"{model.prefix}{{ {'; '.join(parts)} }}")


def context_set(model: Model) -> isl.Set:
    """Return what is known of the parameters, as a set of parameter values.

    Raises:
        ListingError: The contracts and extents contradict each other, at whatever sizes.
    """
    formula = model.context
    if formula == TRUE:
        return isl.Set(f"{model.prefix}{{ : }}")
    found = isl.Set(f"{model.prefix}{{ : {formula} }}")
    if found.is_empty() and not model.normalizer.sizes:
        raise _contradiction(model.program)
    return found


def _contradiction(program: Program) -> ListingError:
    stated = "; ".join(contract_text(contract) for contract in program.contracts)
    mistake = BadContract(
        f"no sizes satisfy {stated}" if stated else "no sizes make every extent at least 0",
        program.contracts[0].span if stated else None,
        why="what is assumed contradicts itself, and then everything would follow from it",
        remedy="leave out what does not hold" if stated else "give shapes that sizes can have",
    )
    return ListingError([mistake], program.source)
