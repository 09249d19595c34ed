"""Where each array of a nest lives while its kernel runs.

    loaded      it is only read: every read is a load
    register    every access is to the cell of the iteration itself: a block that programs keep
    streamed    it is only written, by one statement, or each cell by one iteration: every write is
                a store
    added       atomic parts add to it, and nothing else touches it: every one adds in memory
    recomputed  one statement writes it from inputs alone, and others read it at other cells: they
                work its value out again

What is none of these would go from one lane to another through memory, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from looptrans.algebra.free import freed
from looptrans.algebra.positional.cells import is_own_cell
from looptrans.analysis.api import is_written_once
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.places.cells import with_cell
from looptrans.blocks.places.common_lanes import with_common_lanes
from looptrans.blocks.places.storage import Storage
from looptrans.blocks.scheduled.sites import Site
from looptrans.blocks.scheduled.sites import sites as sites_of
from looptrans.ir.affine import difference, simplified
from looptrans.ir.index import Int, Var, variables
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.value import Access, Const, Value, Whole
from looptrans.transforms.editing.tree import LoopPath, Position, node_at


def stored(
    program: Program,
    sites: tuple[Site, ...],
    grid: Mapping[str, Position],
    statements: dict[str, Assign],
    kept: Set[str],
) -> dict[str, Storage]:
    """Return where each array lives that a kernel touches.

    Args:
        program: The program.
        sites: All accesses of the kernel.
        grid: The variables of the grid, and where in the program their loops are,
            outermost first.
        statements: The kernel's statements by label.
        kept: The arrays that must be in memory when the kernel ends.

    Raises:
        NotLowered: A value would go from one lane to another through memory.
    """
    grouped: dict[str, list[Site]] = {}
    for site in sites:
        grouped.setdefault(site.array, []).append(site)
    found: dict[str, Storage] = {}
    written = {site.array for site in sites if site.is_write}
    for name, own in grouped.items():
        found[name] = _storage(
            program, name, tuple(own), grid, statements, written, kept=name in kept
        )
    return with_common_lanes(found)


def _storage(
    program: Program,
    name: str,
    sites: tuple[Site, ...],
    grid: Mapping[str, Position],
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
        array = program.array(name)
        is_any_float = array.element == "float" and "Float32[" not in (array.annotation or "")
        if array.role == "input" and is_any_float:
            raise NotLowered(
                f"{name} is an argument that is added to in memory, where 16 bits would be rounded "
                f"each time: declare it as Float32[Array, …], or add to an array made here",
                writes[0].label,
            )
        return Storage(name, "added", sites)
    is_scalar = program.array(name).rank == 0
    if not is_scalar and len(writes) == 1 and len(sites) == 1:
        return Storage(name, "streamed", sites)
    register = with_cell(Storage(name, "register", sites, kept=kept), frozenset(grid))
    shared = None if register is None or not kept else _shared(program, register, grid)
    if register is not None and shared is None:
        return register
    definition = _definition(program, sites, writes, statements, written)
    if definition is not None:
        return Storage(name, "recomputed", sites, definition=definition)
    reads = [site for site in sites if not site.is_write]
    if not reads and not is_scalar:
        if is_written_once(program, name):
            return Storage(name, "streamed", sites)
        if is_written_once(program, name, again=True):
            return Storage(name, "streamed", sites, again=True)
    if shared is not None:
        raise NotLowered(
            f"no subscript tells which cells of {name} are set by which iteration of {shared}: "
            "each would have a block of them, and store all of it",
            writes[0].label,
        )
    site = _in_the_way(reads, writes)
    text = access_text(Access(name, site.subscripts))
    where = access_text(Access(name, writes[0].subscripts))
    verb = "writes" if site.is_write else "reads"
    if text == where:
        around = "another loop" if site.bindings != writes[0].bindings else "another iteration"
        raise NotLowered(
            f"{site.label} {verb} {text} again after {writes[0].label} has written it in {around}, "
            "and no loop over its cells is parallel: the value would have to wait in memory",
            site.label,
        )
    raise NotLowered(
        f"{site.label} {verb} {text}, which {writes[0].label} writes as {where}: the value would "
        "go from one lane to another through memory",
        site.label,
    )


def _shared(program: Program, register: Storage, grid: Mapping[str, Position]) -> str | None:
    """Return a loop of the grid whose iterations have no cells of an array to themselves.

    Every iteration stores its cells in the end. What a guard, or a loop that may not run, says of
    who sets a cell is lost then: T[g[i]], set under a guard that one i fulfils, may be the cell of
    others, too, which would store what it held before.
    """
    name, sites = register.array, register.sites
    cells = [Access(name, site.subscripts) for site in sites]
    outer: list[str] = []
    for variable, position in grid.items():
        loop = node_at(program, position)
        assert isinstance(loop, Loop)
        is_one = difference(loop.range.stop, loop.range.start) == Int(1)
        own = is_own_cell(cells, variable, outer)
        outer.append(variable)
        if is_one or own:
            continue
        free = freed(program, LoopPath(loop, position))
        if free is None or name not in free.own:
            return None if _is_set_by_all(program, register, grid) else variable
    return None


def _is_set_by_all(program: Program, register: Storage, grid: Mapping[str, Position]) -> bool:
    """Tell whether no two iterations of the grid have one cell, since each sets its own."""
    if any(
        site.is_write and not site.guards and all(b.variable in grid for b in site.bindings)
        for site in register.sites
    ):
        return True
    around = [b for b in register.sites[0].bindings if b.variable in grid]
    cell = Access(register.array, register.subscripts)
    told = {binding.variable for binding in (*around, *register.lanes)}
    if not told.issuperset(name for index in cell.indices for name in variables(index)):
        return False
    node: Node = Assign("S1", (cell,), (Const(0.0),))
    for binding in reversed([*around, *register.lanes]):
        node = Loop(binding.variable, binding.range, (node,))
    declared = tuple(n for n in program.body if isinstance(n, Declaration))
    return is_written_once(replace(program, body=(*declared, node)), register.array)


def _in_the_way(reads: list[Site], writes: list[Site]) -> Site:
    """Return the access that a refusal is about: the first that is of another cell, if any is."""

    def is_elsewhere(site: Site) -> bool:
        pairs = zip(site.subscripts, writes[0].subscripts, strict=True)
        around = {binding.variable for binding in site.bindings}
        # Loops that do not stand in each other may call the same cells by two names.
        return any(
            one != other
            and not (isinstance(one, Var) and isinstance(other, Var) and other.name not in around)
            for one, other in pairs
        )

    others = [*reads, *writes[1:]]
    return next((site for site in others if is_elsewhere(site)), others[0])


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
        if binding is None or binding.span != (Int(0), simplified(extent), 1):
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
