"""What it says of an array where it lives, and where a register is set before it is read."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

from looptrans.blocks.scheduled.sites import Binding, Path, Site
from looptrans.ir.affine import form_of
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.value import Subscript, Value, Whole

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
        again: For `streamed`, whether two statements of an iteration may store to one cell.
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
    again: bool = False

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
