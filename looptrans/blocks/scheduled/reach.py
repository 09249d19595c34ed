"""How far a nest goes into its arrays, where their shapes do not say that it stays inside."""

from __future__ import annotations

from looptrans.blocks.block_ir.program import NotLowered, Reach
from looptrans.blocks.scheduled.ranges import slope
from looptrans.blocks.scheduled.sites import Binding, Site, sites
from looptrans.ir.affine import (
    Form,
    difference,
    extremum,
    form_of,
    index_of,
    shifted,
    sides,
    simplified,
    total,
)
from looptrans.ir.index import (
    Arith,
    Index,
    Int,
    Opaque,
    Param,
    Var,
    children,
    substitute,
    variables,
    walk,
)
from looptrans.ir.program import Program
from looptrans.ir.value import Whole


def reached(program: Program) -> tuple[Reach, ...]:
    """Return how many elements dimensions must have, as far as their extents may be too few.

    What stands under a guard, or is read where a condition of its value says so, is left out: that
    may be what keeps it inside.

    Raises:
        NotLowered: It cannot be told of an array whose shape is not declared.
    """
    needed: dict[tuple[str, int, tuple[Index, ...]], list[Index]] = {}
    counts = _counts(program)
    for site in sites(program.body):
        array = program.array(site.array)
        if site.guards or site.chosen:
            continue
        for axis, (subscript, extent) in enumerate(zip(site.subscripts, array.shape, strict=True)):
            if isinstance(subscript, Whole) or (extent is None and array.role != "input"):
                continue
            last = _last(site, subscript)
            if last is None and extent is None:
                raise NotLowered(
                    f"{site.label}: it cannot be told how far {array.name} is read; declare "
                    f'its shape, {array.name}: Float[Array, "…"]',
                    site.label or None,
                )
            if last is None:
                continue
            least = shifted(simplified(last[0]), Int(1))
            if extent is not None and _is_within(least, extent, counts):
                continue
            lengths = _asked(site, last)
            if lengths is None:
                continue  # as `range(i + 1, N)` at i = N - 1
            plain = tuple(each for each in lengths if not _is_open(each))
            if extent is None or plain == lengths:
                where = tuple(e for e in plain if not isinstance(e, Int) and e != least)
                needed.setdefault((array.name, axis, where), []).append(least)
    return tuple((*where, extremum("max", ends)) for where, ends in needed.items())


def _counts(program: Program) -> set[str]:
    """Return sizes that are never negative."""
    shapes = [extent for array in program.arrays for extent in array.shape]
    return {extent.name for extent in shapes if isinstance(extent, Param)}


def below(program: Program) -> tuple[Reach, ...]:
    """Return the least subscripts of a nest, as far as they may be negative.

    NumPy would count from the end; a kernel would read or write in front of the array.
    """
    counts = _counts(program)
    found: dict[Reach, None] = {}
    for site in sites(program.body):
        if site.guards or site.chosen:
            continue
        for axis, subscript in enumerate(site.subscripts):
            if isinstance(subscript, Whole) or not variables(subscript):
                continue
            last = _last(site, difference(Int(0), subscript))
            if last is None or any(name not in last[1] for name in variables(subscript)):
                continue
            least = simplified(difference(Int(0), last[0]))
            lengths = _asked(site, last)
            if lengths is None or any(map(_is_open, lengths)):
                continue
            if _is_within(Int(0), least, counts):
                continue
            where = tuple(each for each in lengths if not isinstance(each, Int))
            found[site.array, axis, where, least] = None
    return tuple(found)


def _last(site: Site, subscript: Index) -> tuple[Index, dict[str, Index], tuple[Index, ...]] | None:
    """Return the greatest value of a subscript, over sizes, and the iteration that has it.

    With it come numbers that are positive where there is such an iteration, beside the lengths of
    the loops. None where it is not plain.
    """
    found, chosen = subscript, dict[str, Index]()
    more: list[Index] = []
    for number, binding in reversed(tuple(enumerate(site.bindings))):
        if binding.variable not in variables(found):
            continue
        way = slope(found, binding.variable)
        if way is None or binding.range.step != 1:
            return None
        end, exists = _end(site, number, chosen, way)
        more += exists
        chosen[binding.variable] = end
        found = substitute(found, {binding.variable: end})
    return None if _is_open(found) else (found, chosen, tuple(more))


def _asked(
    site: Site, last: tuple[Index, dict[str, Index], tuple[Index, ...]]
) -> tuple[Index, ...] | None:
    """Return what is positive where an iteration with the greatest subscript is there.

    None where there never is one.
    """
    chosen, more = _others(site, last[1])
    lengths = _plainest((*_lengths(site, chosen), *last[2], *more))
    return None if any(isinstance(e, Int) and e.value <= 0 for e in lengths) else lengths


def _end(
    site: Site, number: int, chosen: dict[str, Index], way: int
) -> tuple[Index, tuple[Index, ...]]:
    """Return the last or first iteration of a loop in which loops inside have iterations.

    With it comes what is positive where there is such an iteration, beside the lengths.
    """
    binding = site.bindings[number]
    ends = [total(binding.range.stop, -1) if way > 0 else binding.range.start]
    ends += _inner_ends(site.bindings[number + 1 :], binding.variable, chosen, way)
    end = extremum("min" if way > 0 else "max", ends)
    if len(ends) == 1:
        return end, ()
    last = difference(total(binding.range.stop, -1), end)
    return end, (simplified(total(difference(end, binding.range.start) if way > 0 else last, 1)),)


def _inner_ends(
    inner: tuple[Binding, ...], variable: str, chosen: dict[str, Index], way: int
) -> list[Index]:
    """Return how far a loop goes where loops inside still have iterations.

    for i in range(N):                  j has none at i = N - 1
        for j in range(i + 1, N):
    """
    ends: list[Index] = []
    for binding in inner:
        length = difference(binding.range.stop, binding.range.start)
        for _ in inner:
            length = substitute(length, chosen)
        form = form_of(length)
        left = form.plus(Form({Var(variable): 1}), way)  # the length is `left` - way * variable
        if form.terms.get(Var(variable)) != -way or _is_open(index_of(left)):
            continue
        ends.append(index_of(left.plus(Form({}, 1), -1).times(way)))
    return ends


def _others(site: Site, chosen: dict[str, Index]) -> tuple[dict[str, Index], tuple[Index, ...]]:
    """Return an iteration, of the loops too that leave a subscript as it is.

    for i in range(N):                  i + 1 iterations are most for the last i
        for j in range(i + 1):
            x = X[F - 1]

    What is asked of a length that another iteration has may be more than need be, and is so only of
    sizes for which there is this one. With it come numbers that are positive where there is.
    """
    found = dict(chosen)
    more: list[Index] = []
    for number, binding in enumerate(site.bindings):
        if binding.variable in found or binding.range.step != 1:
            continue
        for inner in site.bindings:
            length = difference(inner.range.stop, inner.range.start)
            way = slope(length, binding.variable)
            if binding.variable in variables(length) and way:
                found[binding.variable], exists = _end(site, number, found, way)
                more += exists
                break
    return found, tuple(more)


def _lengths(site: Site, chosen: dict[str, Index]) -> tuple[Index, ...]:
    """Return how many iterations the loops around have where the variables are what is chosen."""
    found = []
    for binding in site.bindings:
        length = difference(binding.range.stop, binding.range.start)
        for _ in site.bindings:
            length = simplified(substitute(length, chosen))
        found.append(length)
    return tuple(dict.fromkeys(found))


def _plainest(numbers: tuple[Index, ...]) -> tuple[Index, ...]:
    """Return numbers without those that are positive where another one is, as N is with N - 1."""
    forms = {each: form_of(each) for each in dict.fromkeys(numbers)}

    def follows(one: Form) -> bool:
        return any(
            one.terms == other.terms and one.constant > other.constant for other in forms.values()
        )

    return tuple(each for each, form in forms.items() if form.is_constant or not follows(form))


def _is_open(index: Index) -> bool:
    """Tell whether an index is known only to the kernel."""
    return any(isinstance(part, Var | Opaque) for part in walk(index))


def _is_within(least: Index, extent: Index, counts: set[str]) -> bool:
    """Tell whether an extent is surely so large; the counts are sizes that are never negative."""
    if isinstance(extent, Int) and isinstance(least, Int):
        return least.value <= extent.value
    largest = sides("max", least)
    if len(largest) > 1:
        return all(_is_within(each, extent, counts) for each in largest)
    fewest = sides("min", extent)
    if len(fewest) > 1:
        return all(_is_within(least, each, counts) for each in fewest)
    most = sides("max", extent)
    if len(most) > 1 and any(_is_within(least, each, counts) for each in most):
        return True
    smallest = sides("min", least)
    if len(smallest) > 1:
        return any(_is_within(each, extent, counts) for each in smallest)
    form = form_of(difference(extent, least))
    return form.constant >= 0 and all(
        count > 0 and _is_count(term, counts) for term, count in form.terms.items()
    )


def _is_count(term: Index, counts: set[str]) -> bool:
    if isinstance(term, Arith) and term.op in ("*", "//", "%"):
        return all(_is_count(each, counts) for each in children(term))
    return (isinstance(term, Int) and term.value >= 0) or (
        isinstance(term, Param) and term.name in counts
    )
