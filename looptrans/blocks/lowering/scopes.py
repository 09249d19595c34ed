"""What is in force where a kernel is being lowered: names, dimensions, blocks of operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from looptrans.blocks.block_ir.arithmetic import mentions
from looptrans.blocks.block_ir.expr import Dim, Expr, Name, Position, Role
from looptrans.blocks.block_ir.ops import Let, Op
from looptrans.ir.index import Index

_RANK: dict[Role, int] = {"program": 0, "rows": 1, "element": 2, "tile": 3, "lanes": 4}
_SPACE = 100


@dataclass(slots=True)
class Frame:
    """A block of operations being built.

    Attributes:
        binds: The variables its loop binds.
        conditional: Whether it is a branch: nothing in it is done earlier, where it may not hold.
        ops: The operations so far.
        named: Values that have a name here.
    """

    binds: frozenset[str]
    conditional: bool = False
    ops: list[Op] = field(default_factory=list)
    named: dict[Expr, Name] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Scopes:
    """Names, dimensions and blocks of operations of one kernel.

    Attributes:
        contracted: The dimensions that a matrix product was seen to have, by name, from an earlier
            attempt.
        places: What loop variables stand for.
        dims: The dimensions so far.
        variables: The loop variable that each of them is.
        twins: Lanes of the same range that stand beside others, and these.
        frames: The blocks that are being built, the outermost first.
        guards: The conditions that hold.
        masks: Those of them that say which iterations of a loop a block has.
        defined: What names were set to that no loop carries.
        names: What has a name, by what asked for it.
        taken: Names that are not free.
    """

    contracted: frozenset[tuple[str, Role]] = frozenset()
    places: dict[str, Expr] = field(default_factory=dict)
    dims: list[Dim] = field(default_factory=list)
    variables: dict[Dim, str] = field(default_factory=dict)
    twins: dict[Dim, Dim] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    guards: list[Expr] = field(default_factory=list)
    masks: list[Expr] = field(default_factory=list)
    defined: dict[str, Expr] = field(default_factory=dict)
    names: dict[object, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def name(self, stem: str, key: object) -> str:
        """Return a free name, the same for the same key."""
        if key not in self.names:
            name, number = stem, 1
            while name in self.taken:
                number += 1
                name = f"{stem}_{number}"
            self.taken.add(name)
            self.names[key] = name
        return self.names[key]

    def dim(
        self,
        variable: str,
        role: Role,
        start: Index,
        stop: Index,
        step: int = 1,
        most: Index | None = None,
    ) -> Dim:
        """Return the dimension of a loop; loops over the same range share one."""
        for known in self.dims:
            if known in self.twins:
                continue
            same = (known.role, known.start, known.stop, known.step) == (role, start, stop, step)
            if same and self.variables[known] == variable:
                return known
        name = self._free(variable, role)
        block = None
        if role in ("rows", "tile", "lanes"):
            # Loops over blocks of one variable share a size; anything else has its own.
            key = ("block", variable, role, (start, stop) if role == "lanes" else None)
            block = self.name(f"BLOCK_{variable.upper()}", key)
        count = sum(dim.role == role for dim in self.dims)
        made = Dim(
            name,
            role,
            start,
            stop,
            _SPACE * (_SPACE * _RANK[role] + count),
            step,
            block,
            (name, role) in self.contracted,
            most,
        )
        self.variables[made] = variable
        self.dims.append(made)
        return made

    def beside(self, dim: Dim, variable: str) -> Dim:
        """Return lanes that no loop around goes over: these, or others like them.

        sum(A[d, e] * h[e] for e) in the lanes d of h needs both at once.
        """
        used = {place.dim for place in self.places.values() if isinstance(place, Position)}
        known = [dim, *(twin for twin, of in self.twins.items() if of == dim)]
        for each in known:
            if each not in used:
                return each
        name = self._free(variable, dim.role)
        contracted = dim.contracted or (name, dim.role) in self.contracted
        made = replace(dim, name=name, order=dim.order + len(known), contracted=contracted)
        self.twins[made] = dim
        self.variables[made] = variable
        self.dims.append(made)
        return made

    def _free(self, variable: str, role: Role) -> str:
        """Return a name for a dimension that no other has.

        Loops may have one name, one after the other; what has a name throughout has its own.
        """
        loops = ("tile", "element")
        taken = {d.name for d in self.dims if role not in loops or d.role not in loops}
        name, number = variable, 1
        while name in taken:
            number += 1
            name = f"{variable}_{number}"
        return name

    @contextmanager
    def frame(self, binds: Iterable[str] = (), *, conditional: bool = False) -> Iterator[Frame]:
        """Build a block of operations."""
        made = Frame(frozenset(binds), conditional)
        self.frames.append(made)
        yield made
        self.frames.pop()

    def emit(self, op: Op) -> None:
        """Append an operation to the innermost block."""
        self.frames[-1].ops.append(op)
        if isinstance(op, Let):
            # What was worked out from the value the name had is another value now.
            for known in [
                n for n, v in self.defined.items() if n == op.name or mentions(v, op.name)
            ]:
                del self.defined[known]
            for frame in self.frames:
                for key in [k for k in frame.named if mentions(k, op.name)]:
                    del frame.named[key]

    @contextmanager
    def bound(self, variable: str, place: Expr) -> Iterator[None]:
        """Let a loop variable stand for an expression."""
        before = self.places.get(variable)
        self.places[variable] = place
        yield
        if before is None:
            del self.places[variable]
        else:
            self.places[variable] = before

    @contextmanager
    def masked(self, *masks: Expr) -> Iterator[None]:
        """Let iterations be some of their loop: guards that say no more than its own ends."""
        self.masks.extend(masks)
        with self.guarded(*masks):
            yield
        if masks:
            del self.masks[-len(masks) :]

    @contextmanager
    def guarded(self, *conditions: Expr | None) -> Iterator[None]:
        """Let conditions hold."""
        given = [c for c in conditions if c is not None]
        self.guards.extend(given)
        yield
        if given:
            del self.guards[-len(given) :]
