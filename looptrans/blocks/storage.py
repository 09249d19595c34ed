"""Where each array of a nest lives while its kernel runs.

    loaded      it is only read: every read is a load
    register    every access is to the cell of the iteration itself: a block that programs keep
    streamed    it is only written, by one statement or each cell once: every write is a store
    added       atomic parts add to it, and nothing else touches it: every one adds in memory
    recomputed  one statement writes it from inputs alone, and others read it at other cells: they
                work its value out again

What is none of these would go from one lane to another through memory, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from looptrans.analysis.api import is_written_once
from looptrans.blocks.program import NotLowered
from looptrans.blocks.sites import Binding, Path, Site
from looptrans.blocks.sites import sites as sites_of
from looptrans.ir.affine import difference, form_of, simplified
from looptrans.ir.index import Index, Int, Var, substitute, variables
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.value import Access, Subscript, Value, Whole

Place: TypeAlias = Literal["loaded", "register", "streamed", "added", "recomputed"]


@dataclass(frozen=True, slots=True)
class Storage:
    """Where an array lives.

    Attributes:
        array: The array.
        place: How it is kept.
        subscripts: For a register, the cell of an iteration, over the variables below.
        lanes: For a register, the variables of its subscripts that range over whole dimensions.
        bound: The loops that bind them, by place.
        scope: For a register, the place of the loop of which each iteration has one; () for the
            whole kernel.
        definition: For `recomputed`, the statement.
        sites: Its accesses.
        kept: For a register, whether it must be in memory when the kernel ends: all of it, whatever
            guards stand around every access.
    """

    array: str
    place: Place
    sites: tuple[Site, ...]
    subscripts: tuple[Index, ...] = ()
    lanes: tuple[Binding, ...] = ()
    bound: tuple[tuple[Path, Binding], ...] = ()
    scope: Path = ()
    definition: tuple[tuple[str, ...], Value] | None = None
    kept: bool = False

    @property
    def is_written(self) -> bool:
        """Whether the kernel writes it."""
        return any(site.is_write for site in self.sites)

    @property
    def is_read(self) -> bool:
        """Whether the kernel reads it."""
        return any(not site.is_write for site in self.sites)

    def is_local_to(self, loop: Path) -> bool:
        """Tell whether each iteration of a loop sets it before reading it, and no one later does.

        What is kept is looked at after the loop: where an iteration may leave its cell alone, the
        cell has what an earlier one has set.

        Args:
            loop: The place of the loop.
        """
        inside = [n for n, site in enumerate(self.sites) if _is_in(site.path, loop)]
        if not inside:
            return False
        if self.kept and self._is_left_alone([self.sites[n] for n in inside], loop):
            return False
        # A guard around all of them makes no difference between them.
        common = set.intersection(*(set(self.sites[n].guards) for n in inside))
        own = tuple(self.sites[n] for n in inside)
        if not _sets(own[0], loop, common) and not _are_set(own):
            return False
        after = self.sites[inside[-1] + 1 :]
        if len(inside) == len(self.sites):
            return True
        first = self.sites[0]
        next_sets = not after or _sets(after[0], self._own(after[0], loop)) or _are_set(after)
        before = self.sites[: inside[0]]
        return next_sets and (_sets(first, self._own(first, loop)) or _are_set(before))

    def _is_left_alone(self, own: list[Site], loop: Path) -> bool:
        """Tell whether an iteration may set nothing of a cell that is set in another one too."""
        around = [b for b in own[0].bindings if _is_in(loop, b.path)]
        if all(any(_moves(s, b.variable) for s in own[0].subscripts) for b in around):
            return False
        sides = {
            tuple(g for g in site.guards if len(g) > len(loop) and _is_in(g, loop))
            for site in own
            if _sets(site, loop, set(site.guards))
        }
        return () not in _joined(sides)

    def _own(self, site: Site, loop: Path) -> Path:
        """Return the loop beside `loop` in which a site stands, or what is around both."""
        for binding in site.bindings:
            if len(binding.path) == len(loop) and binding.path[:-1] == loop[:-1]:
                return binding.path
        return loop[:-1]


def _is_in(path: Path, loop: Path) -> bool:
    return path[: len(loop)] == loop


def sets_first(storage: Storage) -> bool:
    """Tell whether the first access surely sets the block of a register, lanes and all.

    Where the block is not kept nobody looks at what a guard around every access leaves out.
    """
    first, guards = storage.sites[0], [set(site.guards) for site in storage.sites]
    common = set[Path]() if storage.kept else set.intersection(*guards)
    deep = {g for g in common if len(g) > len(storage.scope)}
    lanes = {binding.variable for _, binding in storage.bound}
    inner = [b for b in first.bindings if len(b.path) > len(storage.scope)]
    return (
        first.is_write
        and not any(len(g) > len(storage.scope) for g in set(first.guards) - deep)
        and all(b.variable in lanes for b in inner)
    )


def _moves(subscript: Subscript, variable: str) -> bool:
    return not isinstance(subscript, Whole) and Var(variable) in form_of(subscript).terms


def _sets(site: Site, loop: Path, common: Set[Path] = frozenset()) -> bool:
    """Tell whether an access surely sets its cell in each iteration of a loop around it."""
    deeper = [b for b in site.bindings if len(b.path) > len(loop) and _is_in(b.path, loop)]
    named = {name for s in site.subscripts if not isinstance(s, Whole) for name in variables(s)}
    return (
        site.is_write
        and not any(len(g) > len(loop) for g in set(site.guards) - common if _is_in(g, loop))
        and all(b.variable in named for b in deeper)
    )


def _are_set(sites: tuple[Site, ...]) -> bool:
    """Tell whether each read among accesses is of what one before it has set, in all its loops."""

    def is_set(read: Site, before: tuple[Site, ...]) -> bool:
        sides = {
            site.guards
            for site in before
            if site.is_write
            and read.bindings[: len(site.bindings)] == site.bindings
            and site.subscripts == read.subscripts
        }
        return any(all(read.path[: len(g)] == g for g in guards) for guards in _joined(sides))

    return all(site.is_write or is_set(site, sites[:number]) for number, site in enumerate(sites))


def _joined(sides: Set[tuple[Path, ...]]) -> set[tuple[Path, ...]]:
    """Return where something is done, with guards on both sides of which it is done as a whole."""
    found = set(sides)
    for each in sorted(sides, key=len, reverse=True):
        guards = each
        while guards:
            *around, (*place, side) = guards
            if (*around, (*place, 3 - side)) not in found:
                break
            guards = tuple(around)
            found.add(guards)
    return found


def stored(
    program: Program,
    sites: tuple[Site, ...],
    rows: Iterable[str],
    statements: dict[str, Assign],
    kept: Set[str],
) -> dict[str, Storage]:
    """Return where each array lives that a kernel touches.

    Args:
        program: The program.
        sites: All accesses of the kernel.
        rows: The variables of the grid.
        statements: The kernel's statements by label.
        kept: The arrays that must be in memory when the kernel ends.

    Raises:
        NotLowered: A value would go from one lane to another through memory.
    """
    grid = frozenset(rows)
    grouped: dict[str, list[Site]] = {}
    for site in sites:
        grouped.setdefault(site.array, []).append(site)
    found: dict[str, Storage] = {}
    written = {site.array for site in sites if site.is_write}
    for name, own in grouped.items():
        found[name] = _storage(
            program, name, tuple(own), grid, statements, written, kept=name in kept
        )
    return _with_common_lanes(found)


def _with_common_lanes(found: dict[str, Storage]) -> dict[str, Storage]:
    """Let blocks that one loop goes over have the same lanes, whatever their loops are called.

    Two lanes of one block stay two: in for d: for e: C[d, e] = x[d] * x[e] both loops go over x.
    """
    groups: list[_Lanes] = []
    for storage in found.values():
        for lane in storage.lanes:
            own = {(path, _range(lane)) for path, home in storage.bound if home == lane}
            joined = _Lanes([(storage.array, lane)], own)
            apart = []
            for group in groups:
                if group.places & own and not group.arrays & joined.arrays:
                    joined = _Lanes(group.members + joined.members, group.places | joined.places)
                else:
                    apart.append(group)
            groups = [*apart, joined]
    return _called_alike(found, [group.members for group in groups])


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Lanes of blocks that have one dimension.

    Attributes:
        members: The blocks, and which of their lanes.
        places: The loops that go over them, with their ranges.
    """

    members: list[tuple[str, Binding]]
    places: set[tuple[Path, tuple[Index, Index, int]]]

    @property
    def arrays(self) -> set[str]:
        return {array for array, _ in self.members}


def _called_alike(
    found: dict[str, Storage], groups: list[list[tuple[str, Binding]]]
) -> dict[str, Storage]:
    """Call the lanes of a group what the first is called, unless its blocks say that already."""
    called: dict[tuple[str, Binding], Binding] = {}
    for group in groups:
        _, first = group[0]
        taken: set[str] = set()
        for array, lane in group:
            others = [called.get((array, o), o) for o in found[array].lanes if o != lane]
            named = {name for s in found[array].subscripts for name in variables(s)}
            taken |= (named | {other.variable for other in others}) - {lane.variable}
        name, number = first.variable, 1
        while name in taken:
            number += 1
            name = f"{first.variable}_{number}"
        for each in group:
            called[each] = replace(first, variable=name)
    made = {}
    for array, storage in found.items():
        new = {lane: called[array, lane] for lane in storage.lanes}
        names: dict[str, Index] = {o.variable: Var(n.variable) for o, n in new.items()}
        made[array] = replace(
            storage,
            subscripts=tuple(substitute(s, names) for s in storage.subscripts),
            lanes=tuple(new[lane] for lane in storage.lanes),
            bound=tuple((path, new[home]) for path, home in storage.bound),
        )
    return made


def _storage(
    program: Program,
    name: str,
    sites: tuple[Site, ...],
    grid: frozenset[str],
    statements: dict[str, Assign],
    written: set[str],
    *,
    kept: bool,
) -> Storage:
    writes = [site for site in sites if site.is_write]
    if not writes:
        return Storage(name, "loaded", sites)
    if any(site.atomic for site in sites):
        apart = next((site for site in sites if not site.atomic), None)
        if apart is not None:
            raise NotLowered(
                f"{apart.label} touches {name} outside of the atomic parts that add to it",
                apart.label,
            )
        return Storage(name, "added", sites)
    is_scalar = program.array(name).rank == 0
    if not is_scalar and len(writes) == 1 and len(sites) == 1:
        return Storage(name, "streamed", sites)
    cell = _cell(sites, grid, apart=True)
    whole = Storage(name, "register", sites, kept=kept)
    if cell is None or not _stays(whole, cell[0], cell[1], grid):
        cell = _cell(sites, grid, apart=False)
        if cell is not None and not _stays(whole, cell[0], cell[1], grid):
            cell = None
    if cell is not None:
        subscripts, lanes, bound = cell
        scope = _scope(whole, subscripts, lanes)
        return replace(whole, subscripts=subscripts, lanes=lanes, bound=bound, scope=scope)
    definition = _definition(program, sites, writes, statements, written)
    if definition is not None:
        return Storage(name, "recomputed", sites, definition=definition)
    reads = [site for site in sites if not site.is_write]
    if not reads and not is_scalar and is_written_once(program, name):
        return Storage(name, "streamed", sites)
    site = _in_the_way(reads, writes)
    text = access_text(Access(name, site.subscripts))
    where = access_text(Access(name, writes[0].subscripts))
    verb = "writes" if site.is_write else "reads"
    if text == where:
        raise NotLowered(
            f"{site.label} {verb} {text} again after {writes[0].label} has written it in another "
            "loop, and no loop over its cells is parallel: the value would have to wait in memory",
            site.label,
        )
    raise NotLowered(
        f"{site.label} {verb} {text}, which {writes[0].label} writes as {where}: the value would "
        "go from one lane to another through memory",
        site.label,
    )


def _in_the_way(reads: list[Site], writes: list[Site]) -> Site:
    """Return the access that a refusal is about: the first that is of another cell, if any is."""

    def is_elsewhere(site: Site) -> bool:
        pairs = zip(site.subscripts, writes[0].subscripts, strict=True)
        return any(
            one != other and not (isinstance(one, Var) and isinstance(other, Var))
            for one, other in pairs
        )

    others = [*reads, *writes[1:]]
    return next((site for site in others if is_elsewhere(site)), others[0])


def _cell(
    sites: tuple[Site, ...], grid: frozenset[str], *, apart: bool
) -> tuple[tuple[Index, ...], tuple[Binding, ...], tuple[tuple[Path, Binding], ...]] | None:
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
            if name not in grid and home.execution != "parallel" and not _tells(subscript, name):
                return None
        subscripts.append(subscript)
    return tuple(subscripts), tuple(lanes), tuple(bound.items())


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
    return _range(binding) == _range(home) and binding.execution in ("parallel", "sum")


def _tells(subscript: Index, name: str) -> bool:
    """Tell whether a subscript differs from one iteration of a loop to the next, all else alike."""
    terms = form_of(subscript).terms
    plain = all(term == Var(name) or name not in variables(term) for term in terms)
    return plain and Var(name) in terms and set(variables(subscript)) == {name}


def _stays(
    whole: Storage,
    subscripts: tuple[Index, ...],
    lanes: tuple[Binding, ...],
    grid: frozenset[str],
) -> bool:
    """Tell whether no loop around that of a cell comes back to it later.

    With `for j: for d: O[d] = O[d] + …` every iteration of j goes through all cells again.
    """
    scope = _scope(whole, subscripts, lanes)
    named = {variable for subscript in subscripts for variable in variables(subscript)}
    own = {binding.variable for binding in lanes}
    around = [b for b in whole.sites[0].bindings if len(b.path) <= len(scope)]
    inner = [b for b in around if b.variable in named - grid - own]
    if not inner:
        return True
    return whole.is_local_to(inner[-1].path) or all(
        b.variable in named or whole.array in b.private or b.variable in grid
        for b in around
        if len(b.path) < len(inner[-1].path)
    )


def _is_one_loop(sites: tuple[Site, ...], subscripts: list[Subscript], home: Binding) -> bool:
    """Tell whether a variable is that of one and the same loop in all accesses."""
    return home.execution != "sum" and all(
        not isinstance(subscript, Whole)
        and home.variable in variables(subscript)
        and site.binding(home.variable) == home
        for site, subscript in zip(sites, subscripts, strict=True)
    )


def _range(binding: Binding) -> tuple[Index, Index, int]:
    return simplified(binding.range.start), simplified(binding.range.stop), binding.range.step


def _scope(whole: Storage, subscripts: tuple[Index, ...], lanes: tuple[Binding, ...]) -> Path:
    """Return the innermost loop of which each iteration has a cell of its own."""
    sites = whole.sites
    common = sites[0].bindings
    for site in sites[1:]:
        count = 0
        for a, b in zip(common, site.bindings, strict=False):
            if a.path != b.path:
                break
            count += 1
        common = common[:count]
    named = {variable for subscript in subscripts for variable in variables(subscript)}
    scope: Path = ()
    for binding in common:
        own = binding.variable in named or whole.array in binding.private
        if own and binding.execution != "sum" and binding not in lanes:
            scope = binding.path
    for binding in common:
        if len(binding.path) > len(scope) and binding.execution != "sum":
            if binding in lanes:
                break
            if whole.is_local_to(binding.path):
                scope = binding.path
    return scope


def _definition(
    program: Program,
    sites: tuple[Site, ...],
    writes: list[Site],
    statements: dict[str, Assign],
    written: set[str],
) -> tuple[tuple[str, ...], Value] | None:
    """Return the value of a cell over the variables of its subscripts, where it is pure.

    One statement sets every cell, without a condition, from arrays that the kernel does not write,
    and each read comes after.
    """
    if len(writes) != 1:
        return None
    site = writes[0]
    names: list[str] = []
    array = program.array(site.array)
    for subscript, extent in zip(site.subscripts, array.shape, strict=True):
        if not isinstance(subscript, Var) or subscript.name in names or extent is None:
            return None
        binding = site.binding(subscript.name)
        if binding is None or _range(binding) != (Int(0), simplified(extent), 1):
            return None
        names.append(subscript.name)
    own = {b.variable for b in site.bindings if b.execution != "sum"}
    statement = statements[site.label]
    if site.guards or own - set(names) or len(statement.targets) != 1 or statement.augmented:
        return None
    read = {s.array for s in sites_of((statement,)) if not s.is_write}
    if read & written:
        return None
    if not all(read is site or _comes_after(read, site, sites) for read in sites):
        return None
    return tuple(names), statement.values[0]


def _comes_after(read: Site, write: Site, sites: tuple[Site, ...]) -> bool:
    """Tell whether what a read sees has been written, in loops from 0 upwards, one by subscript."""
    if sites.index(read) < sites.index(write):
        return False
    for around, own in zip(read.bindings, write.bindings, strict=False):
        if around.path != own.path or own.execution == "sum":
            break
        subscript = read.subscripts[write.subscripts.index(Var(own.variable))]
        if isinstance(subscript, Whole):
            return False
        ahead = difference(subscript, Var(own.variable))
        if not isinstance(ahead, Int) or ahead.value > 0:
            return False
        if ahead.value < 0:
            break
    return True
