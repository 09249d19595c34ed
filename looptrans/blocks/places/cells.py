"""Which cell of a register an iteration has, and which loops go over whole blocks of cells.

    for i:
      for j: m[i] = max(m[i], S[i, j])    each iteration of i has the cell m[i]
      for d: O[i, d] = O[i, d] / m[i]     ... and a block of O, with the lane d

Every access must be to that cell, whatever the loop around it calls its variable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.blocks.places.storage import Storage
from looptrans.blocks.scheduled.sites import Binding, Path, Site
from looptrans.ir.affine import form_of, simplified
from looptrans.ir.index import Arith, Index, Int, Var, substitute, variables
from looptrans.ir.value import Subscript, Whole


def with_cell(register: Storage, grid: frozenset[str]) -> Storage | None:
    """Return a register with the cell that all its accesses are to, if they are to one.

    Iterations of a loop around all accesses have cells of their own where no later one comes back
    to them; else its iterations are lanes of one block.

    Args:
        register: Where the array lives, its cell not yet known.
        grid: The variables of the grid.
    """
    for apart in (True, False):
        cell = _cell(register.sites, grid, apart=apart)
        if cell is not None and _stays(register, cell, grid):
            return replace(
                register,
                subscripts=cell.subscripts,
                lanes=cell.lanes,
                bound=cell.bound,
                scope=_scope(register, cell),
            )
    return None


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell, as `Storage` has it."""

    subscripts: tuple[Index, ...]
    lanes: tuple[Binding, ...]
    bound: tuple[tuple[Path, Binding], ...]


def _cell(sites: tuple[Site, ...], grid: frozenset[str], *, apart: bool) -> _Cell | None:
    """Return the cell that all accesses are to, if they are to one for each iteration.

    Args:
        sites: The accesses.
        grid: The variables of the grid.
        apart: Whether the iterations of a loop that holds all accesses have cells of their own;
            else all its iterations are in one block, where it is parallel.
    """
    first = sites[0]
    lanes: list[Binding] = []
    bound: dict[Path, Binding] = {}
    subscripts: list[Index] = []
    for position, subscript in enumerate(first.subscripts):
        if isinstance(subscript, Whole):
            return None
        others = [site.subscripts[position] for site in sites]
        if isinstance(subscript, Var) and subscript.name not in grid:
            home = first.binding(subscript.name)
            if home is None or home in lanes:
                return None
            if apart and _is_one_loop(sites, others, home):
                if any(other != subscript for other in others):
                    return None
                subscripts.append(subscript)
                continue
            # A variable of several loops: the same range everywhere, whatever it is called.
            for site, other in zip(sites, others, strict=True):
                binding = site.binding(other.name) if isinstance(other, Var) else None
                if binding is None or not _is_lane(binding, home):
                    return None
                bound[binding.path] = home
            lanes.append(home)
            subscripts.append(subscript)
            continue
        found = _lane_within(sites, others, subscript, grid, apart=apart)
        if found is not None:
            home, more = found
            if home in lanes:
                return None
            bound |= more
            lanes.append(home)
            subscripts.append(subscript)
            continue
        plain = simplified(subscript)
        if any(isinstance(o, Whole) or simplified(o) != plain for o in others):
            return None
        for name in variables(subscript):
            home = first.binding(name)
            if home is None or (name not in grid and not _is_one_loop(sites, others, home)):
                return None
            if (
                name not in grid
                and home.execution != "parallel"
                and not tells(subscript, name)
                and not _is_of_digits(subscript, first)
            ):
                return None
        subscripts.append(subscript)
    return _Cell(tuple(subscripts), tuple(lanes), tuple(bound.items()))


def _lane_within(
    sites: tuple[Site, ...],
    subscripts: list[Subscript],
    subscript: Index,
    grid: frozenset[str],
    *,
    apart: bool,
) -> tuple[Binding, dict[Path, Binding]] | None:
    """Return what binds the one lane of a subscript such as `h * D + d`, everywhere the same.

    Returns:
        Its loop, and the loops that bind it, by place; None where it is none.
    """

    def lane(site: Site, index: Index) -> Binding | None:
        names = [name for name in variables(index) if name not in grid]
        found = site.binding(names[0]) if len(names) == 1 else None
        moves = form_of(index).terms
        if found is None or Var(found.variable) not in moves:
            return None
        alone = all(t == Var(names[0]) or names[0] not in variables(t) for t in moves)
        return found if alone else None

    home = lane(sites[0], subscript)
    if home is None or (apart and _is_one_loop(sites, subscripts, home)):
        return None
    bound: dict[Path, Binding] = {}
    for site, other in zip(sites, subscripts, strict=True):
        binding = None if isinstance(other, Whole) else lane(site, other)
        if isinstance(other, Whole) or binding is None or not _is_lane(binding, home):
            return None
        if simplified(substitute(other, {binding.variable: Var(home.variable)})) != simplified(
            subscript
        ):
            return None
        bound[binding.path] = home
    return home, bound


def _is_lane(binding: Binding, home: Binding) -> bool:
    """Tell whether a loop goes in any order over the range of another one."""
    return binding.span == home.span and binding.execution in ("parallel", "sum")


def tells(subscript: Index, name: str) -> bool:
    """Tell whether a subscript differs from one iteration of a loop to the next, all else alike."""
    terms = form_of(subscript).terms
    plain = all(term == Var(name) or name not in variables(term) for term in terms)
    return plain and Var(name) in terms and set(variables(subscript)) == {name}


def _is_of_digits(subscript: Index, site: Site) -> bool:
    """Tell whether no two iterations of the loops in a subscript have the same cell.

    So it is with `t * 16 + i`, where i stays below 16, and `t * C + i`, where it does below C.
    """
    terms = form_of(subscript).terms
    own = {name: site.binding(name) for term in terms for name in variables(term)}
    match tuple(terms.items()):
        case ((Arith("*", Var(high), radix), 1), (Var(low), 1)) | (
            (Var(low), 1),
            (Arith("*", Var(high), radix), 1),
        ):
            below = own[low]
            return (
                high != low
                and not any(own[name] for name in variables(radix))
                and below is not None
                and below.span == (Int(0), simplified(radix), 1)
            )
        case _:
            pass
    width = 1  # of what the terms so far make together
    for term, factor in sorted(terms.items(), key=lambda each: abs(each[1])):
        bounds = own[term.name] if isinstance(term, Var) else None
        if bounds is None or not width or abs(factor) < width:
            return False
        match bounds.span:
            case (Int(start), Int(stop), _):
                width += abs(factor) * max(abs(stop - start) - 1, 0)
            case _:
                width = 0  # only the last one may have no bound
    return True


def _is_one_loop(sites: tuple[Site, ...], subscripts: list[Subscript], home: Binding) -> bool:
    """Tell whether a variable is that of one and the same loop in all accesses."""
    return home.execution != "sum" and all(
        not isinstance(subscript, Whole)
        and home.variable in variables(subscript)
        and site.binding(home.variable) == home
        for site, subscript in zip(sites, subscripts, strict=True)
    )


def _stays(register: Storage, cell: _Cell, grid: frozenset[str]) -> bool:
    """Tell whether no loop around that of a cell comes back to it later.

    With `for j: for d: O[d] = O[d] + …` every iteration of j goes through all cells again.
    """
    scope = _scope(register, cell)
    named = {variable for subscript in cell.subscripts for variable in variables(subscript)}
    own = {binding.variable for binding in cell.lanes}
    around = [b for b in register.sites[0].bindings if len(b.path) <= len(scope)]
    inner = [b for b in around if b.variable in named - grid - own]
    if not inner:
        return True
    return register.is_local_to(inner[-1].path) or all(
        b.variable in named or register.array in b.private or b.variable in grid
        for b in around
        if len(b.path) < len(inner[-1].path)
    )


def _scope(register: Storage, cell: _Cell) -> Path:
    """Return the innermost loop of which each iteration has a cell of its own."""
    sites = register.sites
    common = sites[0].bindings
    for site in sites[1:]:
        count = 0
        for a, b in zip(common, site.bindings, strict=False):
            if a.path != b.path:
                break
            count += 1
        common = common[:count]
    named = {variable for subscript in cell.subscripts for variable in variables(subscript)}
    scope: Path = ()
    for binding in common:
        own = binding.variable in named or register.array in binding.private
        if own and binding.execution != "sum" and binding not in cell.lanes:
            scope = binding.path
    for binding in common:
        if len(binding.path) > len(scope) and binding.execution != "sum":
            if binding in cell.lanes:
                break
            if register.is_local_to(binding.path):
                scope = binding.path
    return scope
