"""What a backward listing keeps in memory because working it out again would take long.

    ds[t, v] = dl[t] * (exp(sum(x[t, f] * W[v, f] for f) - lse[t]) - 1)

Each cell sums products over more than a block holds (`assert F > 512`). Gradients that sum ds over
t, or over v, would each go over all of f for each of its cells; they read it instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.adjoint.equations.size import has_full_rows
from looptrans.adjoint.equations.sums import Term
from looptrans.algebra.positional.cells import added_up
from looptrans.ir.program import Program
from looptrans.ir.value import Binary, Read, Reduce, Value, free_variables, walk_value
from looptrans.transforms.editing.extents import is_wide


def worked_out_once(
    program: Program, system: System, is_stored: Callable[[str], bool], terms: Iterable[Term]
) -> Iterator[str]:
    """Yield the definitions that sums read, and that are worked out from sums over wide ranges.

    Args:
        program: The listing; its contracts say what is wide.
        system: Its definitions, adjoints among them.
        is_stored: Tells whether a definition is in memory.
        terms: What gradients are the sums of.
    """
    for term in terms:
        if not term.generators:
            continue
        for atom, _ in term.factors:
            for part in walk_value(atom):
                if not isinstance(part, Read):
                    continue
                definition = system.definitions.get(part.access.array)
                if (
                    definition is None
                    or is_stored(definition.name)
                    or not has_full_rows(definition)
                ):
                    continue
                if _is_summed_wide(program, system, is_stored, definition):
                    yield definition.name


def _is_summed_wide(
    program: Program, system: System, is_stored: Callable[[str], bool], definition: Definition
) -> bool:
    """Tell whether a cell, worked out again, sums products of two rows over a wide range."""
    for part in walk_value(definition.value):
        match part:
            case Reduce() if is_wide_sum(program, part):
                return True
            case Read(access) if access.array in system.definitions:
                inner = system.definitions[access.array]
                if not is_stored(inner.name) and _is_summed_wide(program, system, is_stored, inner):
                    return True
            case _:
                pass
    return False


def is_wide_sum(program: Program, value: Reduce) -> bool:
    """Tell whether a value sums products of two rows, each with an index of its own, over many.

    Args:
        program: The program; its contracts say what is wide.
        value: The value.
    """
    match value:
        case Reduce("sum", (over,), Binary("*", left, right)) if is_wide(program, over.range):
            one, other = set(free_variables(left)), set(free_variables(right))
            return over.variable in one & other and bool(one - other) and bool(other - one)
        case _:
            return False


def is_of_no_product(value: Value) -> bool:
    """Tell whether a value sums products with K[i + w, e], which hangs on the row of Q[i, e], too.

    No matrix product is made of such sums: each is worked out by itself.
    """
    if not isinstance(value, Reduce) or value.function != "sum":
        return False
    bound = {generator.variable for generator in value.generators}
    reads = {part.access for part in walk_value(value.body) if isinstance(part, Read)}
    for access in reads:
        others = {v for other in reads - {access} for v in other.variables}
        for added in map(set, map(added_up, access.indices)):
            if added & others - bound and added - others:
                return True
    return False
