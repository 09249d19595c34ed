"""The state of lowering one kernel: its index expressions, conditions and loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from looptrans.blocks.block_ir.arithmetic import both, conjuncts, mentions
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Dim,
    Edge,
    Expr,
    Kind,
    Load,
    Name,
    Number,
    Position,
    Role,
    Scalar,
    Unary,
    dims_of,
    kind_of,
    names_of,
    union,
    walk,
)
from looptrans.blocks.block_ir.ops import Let, exprs_of
from looptrans.blocks.block_ir.program import Rounding
from looptrans.blocks.lowering.in_front import in_front
from looptrans.blocks.lowering.scopes import Frame, Scopes
from looptrans.blocks.places.storage import Storage
from looptrans.blocks.scheduled.sites import Path
from looptrans.ir.affine import form_of, sides
from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Neg,
    Opaque,
    Param,
    Var,
    opaque_terms,
    variables,
)
from looptrans.ir.index import Let as IndexLet
from looptrans.ir.program import Program
from looptrans.ir.value import Value


@dataclass(slots=True)
class Builder(Scopes):
    """Lowers one kernel.

    Attributes:
        program: The program.
        storage: Where its arrays live.
        kept: Arrays that must be in memory when the kernel ends.
        before: Arrays that an earlier kernel has written.
        positive: Names that are known to be positive.
        rounding: Which operands of matrix products are rounded to the type of the input they meet,
            unless they are quotients by what may be close to 0; else only where they are at most 1.
        begun: The array or scalar whose statement is being lowered.
        rounded: Whether those of that statement are.
        exact: Arrays that are in float32 whatever the inputs are.
        short: Arrays that have 16 bits whatever the inputs have, and their types.
        lengths: The parameters that are surely not below 0.
        loops: The loops over blocks around what is being lowered, with their places.
    """

    program: Program
    storage: dict[str, Storage]
    kept: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()
    positive: frozenset[str] = frozenset()
    rounding: Rounding | None = None
    begun: str = ""
    rounded: bool = False
    exact: frozenset[str] = frozenset()
    short: Mapping[str, str] = field(default_factory=dict)
    stops: dict[Dim, Expr | None] = field(default_factory=dict)
    loops: dict[Dim, Path] = field(default_factory=dict)
    known: dict[str, dict[Expr, float]] = field(default_factory=dict)
    read: dict[str, Load] = field(default_factory=dict)
    values: dict[str, Name] = field(default_factory=dict)
    seen_contracted: set[tuple[str, Role]] = field(default_factory=set)
    nonpositive: set[tuple[Expr, str]] = field(default_factory=set)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    label: str = ""
    lengths: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = frozenset(_lengths(self.program))
        self.taken |= {array.name for array in self.program.arrays}
        self.taken |= {parameter.name for parameter in self.program.parameters}

    # Index expressions

    def index(self, index: Index) -> Expr:
        """Return an index expression as an integer value."""
        match index:
            case Int(value):
                return Number(value)
            case Var(name):
                return self.places[name]
            case Param(name):
                return Scalar(name)
            case Neg(operand):
                return Unary("-", self.index(operand))
            case Arith("//" | "%" as op, left, right):
                return self._divided(op, left, right)
            case Arith(op, left, right):
                return Binary(op, self.index(left), self.index(right))
            case Extremum(op, arguments):
                first, *rest = (self.index(a) for a in arguments)
                for part in rest:
                    first = Call(op, (first, part))
                return first
            case Opaque(array, arguments):
                return self.load(array, tuple(self.index(a) for a in arguments), "int")
            case IndexLet(name, value):
                return self.index(value) if name not in self.values else self.values[name]

    def _divided(self, op: str, left: Index, right: Index) -> Expr:
        """Return a quotient or remainder that rounds toward minus infinity, as the listing's."""
        a, b = self.index(left), self.index(right)
        if self.is_nonnegative(left):
            return Binary("//", a, b) if op == "//" else Binary("%", a, b)
        rest = Binary("%", a, b)
        below = Binary("<", rest, Number(0))
        if op == "//":
            return Binary("-", Binary("//", a, b), below)
        return Binary("+", rest, Binary("*", below, b))

    def is_nonnegative(self, index: Index) -> bool:
        """Tell whether an index expression is surely at least 0."""
        match index:
            case Int(value):
                return value >= 0
            case Var(name):
                place = self.places.get(name)
                return isinstance(place, Position) and self.is_nonnegative(place.dim.start)
            case Param(name):
                return name in self.lengths
            case Arith("+" | "*" | "//", left, right):
                return self.is_nonnegative(left) and self.is_nonnegative(right)
            case Arith("%", _, right):
                return self.is_nonnegative(right)
            case Extremum("min", arguments):
                return all(map(self.is_nonnegative, arguments))
            case Extremum("max", arguments):
                return any(map(self.is_nonnegative, arguments))
            case Opaque(array, _):
                declared = self.program.array(array).value_range
                return declared is not None and self.is_nonnegative(declared[0])
            case IndexLet(_, value):
                return self.is_nonnegative(value)
            case _:
                return False

    def condition(self, condition: Condition, value: Callable[[Value], Expr] | None = None) -> Expr:
        """Return a condition as a truth value."""
        is_every = isinstance(condition, Every)
        match condition:
            case Truth(truth):
                return Number(truth)
            case Relation(op, left, right):
                return Binary(op, self.index(left), self.index(right))
            case Every(parts) | Some(parts):
                first, *rest = parts
                found = self.condition(first, value)
                for part in rest:
                    # It is looked at only where those before it leave it open.
                    with self.guarded(found if is_every else Unary("not", found)):
                        other = self.condition(part, value)
                    found = Binary("and" if is_every else "or", found, other)
                return found
            case Not(part):
                return Unary("not", self.condition(part, value))
            case Data(tested):
                assert value is not None
                return value(tested)

    # Loads

    def inside(self, dims: Iterable[Dim]) -> Expr | None:
        """Return that the iterations of some dimensions exist; None where it is sure."""
        parts: list[Expr] = []
        for dim in dims:
            if dim.role in ("rows", "lanes"):
                parts.append(Binary("<", Position(dim), self.index(dim.stop)))
            elif dim.role == "tile" and self.stops.get(dim) is not None:
                stop = self.stops[dim]
                assert stop is not None
                parts.append(Binary("<", Position(dim), stop))
        return both(*parts)

    def load(
        self,
        array: str,
        subscripts: tuple[Expr, ...],
        kind: Kind = "float",
        copy: tuple[str, str] | None = None,
    ) -> Name:
        """Return elements of an array, read where that is first possible, under a name.

        Args:
            array: The array.
            subscripts: Which elements.
            kind: What it holds.
            copy: The name and the label of a statement that does no more than this.
        """
        dims = union(*(dims_of(s) for s in subscripts))
        # What is drawn keeps no subscript inside, and draws are dearer than loads.
        # Of a guard that hangs on more, what it says of indices alone is a bound of these.
        bounds = [p for guard in self.guards for p in conjuncts(guard) if _is_of_positions(p)]
        each = dict.fromkeys((*bounds, *self.guards))
        sure = [g for guard in each if (g := self._without_draws(guard)) is not None]
        guards = [g for g in sure if set(dims_of(g)) <= set(dims) and dims_of(g)]
        guards += [g for g in sure if not dims_of(g)]
        partial = [g for g in sure if not set(dims_of(g)) <= set(dims)]
        limits = self.limits(array, subscripts) if partial else ()
        limits = (*limits, *self._ends(array, subscripts))
        mask = both(self.inside(dims), *guards, *limits)
        kept = self._kept(Load(array, subscripts, mask, None, kind), partial)
        mask = both(mask, *(each for each in kept if each not in conjuncts(mask)))
        load = Load(array, subscripts, mask, None if mask is None else 0, kind)
        if kind == "float" and mask is not None:
            load = replace(load, other=0.0)
        frame = self._home(load)
        if frame is not self.frames[-1]:
            asked = in_front(self.program, self.places, self.read, self.index, load)
            if more := [each for each in asked if each not in conjuncts(mask)]:
                mask = both(mask, *more)
                load = replace(load, mask=mask, other=0.0 if kind == "float" else 0)
        if not all(map(_surely_there, subscripts, self.program.array(array).shape)):
            # X[i, 0] need not be there where the loops around it have no iterations.
            frame = self.frames[-1]
        key = replace(load, other=None)
        if key not in frame.named:
            wider = self._wider(key)
            if wider is not None:
                return wider
            if copy is None:
                name = self._load_name(array, subscripts, mask)
                labels = (self.label,) if self.label else ()
                frame.ops.append(Let(name, load, labels, dims=dims))
            else:
                name = copy[0]
                frame.ops.append(Let(name, load, copy[1:], dims=dims))
            held = array if kind == "float" else None
            frame.named[key] = Name(name, dims, load.kind, held)
            self.read[name] = load
            self.forget_order(name)  # another load may hold another number where it is masked
        elif self.read[frame.named[key].name].mask != mask:
            self.read[frame.named[key].name] = load
        return frame.named[key]

    def _without_draws(self, guard: Expr) -> Expr | None:
        if not self._is_drawn(guard):
            return guard
        return both(*(part for part in conjuncts(guard) if not self._is_drawn(part)))

    def _is_drawn(self, condition: Expr) -> bool:
        """Tell whether a condition hangs on random numbers."""
        return any(
            (isinstance(part, Call) and part.function == "uniform")
            or (
                isinstance(part, Name)
                and part.name in self.defined
                and self._is_drawn(self.defined[part.name])
            )
            for part in walk(condition)
        )

    def _wider(self, load: Load) -> Name | None:
        """Return the name of the same elements, read wherever `load` reads them."""
        needed = set(conjuncts(load.mask))
        for frame in reversed(self.frames):
            for key, name in frame.named.items():
                if (
                    isinstance(key, Load)
                    and (key.array, key.subscripts) == (load.array, load.subscripts)
                    and set(conjuncts(key.mask)) <= needed
                ):
                    return name
        return None

    def _load_name(self, array: str, subscripts: tuple[Expr, ...], mask: Expr | None) -> str:
        """Return a name for a load: not one that still stands for another load."""
        stem = f"{array}_{_letters(subscripts)}"
        name = self.name(stem, (array, subscripts))
        if any(name == other.name for frame in self.frames for other in frame.named.values()):
            name = self.name(stem, (array, subscripts, mask))
        return name

    def contract(self, *dims: Dim) -> None:
        """Let blocks over some dimensions have room for matrix products, in the next attempt."""
        for dim in dims:
            self.seen_contracted |= {(d.name, d.role) for d in (dim, self.twins.get(dim, dim))}

    def limits(self, array: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return that subscripts are inside an array, where a guard may be what keeps them so."""
        found: list[Expr] = []
        for subscript, extent in zip(subscripts, self.program.array(array).shape, strict=True):
            if extent is None or (
                isinstance(subscript, Position) and not self._differs(subscript.dim)
            ):
                continue
            if dims_of(subscript) or not isinstance(subscript, Position | Number | Name | Scalar):
                found.append(Binary(">=", subscript, Number(0)))
                found.append(Binary("<", subscript, self.index(extent)))
        return tuple(found)

    def _kept(self, load: Load, guards: Iterable[Expr]) -> tuple[Expr, ...]:
        """Return that iterations are inside an array, where guards may be what keeps them so.

        for k in range(i - c, i + c + 1): ... K[k] where k <= i, of which K[k] alone knows nothing.
        """
        own = {part for mask in self.masks for part in (mask, *conjuncts(mask))}
        told = {dim for guard in guards if guard not in own for dim in dims_of(guard)}
        rows = {at for at in load.subscripts if isinstance(at, Position) and at.dim in told}
        if not rows:
            return ()
        asked = in_front(self.program, self.places, self.read, self.index, load)
        return tuple(e for e in asked if isinstance(e, Binary) and e.left in rows)

    def _ends(self, array: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return that iterations are inside an array, where their loop goes further.

        What keeps them inside then is a guard, or a loop inside that has no iterations there; and
        it is read before these. So is what is found by an element of such an array.
        """
        found: list[Expr] = []
        for subscript, extent in zip(subscripts, self.program.array(array).shape, strict=True):
            if isinstance(subscript, Position) and extent is not None:
                if _goes_beyond(subscript.dim.stop, extent):
                    found.append(Binary("<", subscript, self.index(extent)))
                continue
            for part in walk(subscript):
                if isinstance(part, Name) and (load := self.read.get(part.name)) is not None:
                    found += self._ends(load.array, load.subscripts)
        return tuple(found)

    def _differs(self, dim: Dim) -> bool:
        """Tell whether each row reads its own ends of a loop: those of no iterations say nothing.

        CSR: for k in range(start[i], start[i + 1]), where start may be anything if both are alike.
        """
        if dim.role != "tile":
            return False
        read = [t for end in (dim.start, dim.stop) for t in opaque_terms(end)]
        names = {name for term in read for name in variables(term)}
        return any(d.is_vector for n in names if n in self.places for d in dims_of(self.places[n]))

    def held(self, array: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return that the cells of a block are there, where only guards in loops keep them so."""
        found = list(self.limits(array, subscripts))
        for subscript, extent in zip(subscripts, self.program.array(array).shape, strict=True):
            match subscript:
                case Position(dim) if extent is not None:
                    if not (isinstance(dim.start, Int) and dim.start.value >= 0 and dim.step > 0):
                        found.append(Binary(">=", subscript, Number(0)))
                    if extent not in sides("min", dim.stop):
                        found.append(Binary("<", subscript, self.index(extent)))
                case _ if extent is not None and not isinstance(subscript, Position):
                    if not isinstance(subscript, Number):
                        found.append(Binary(">=", subscript, Number(0)))
                    found.append(Binary("<", subscript, self.index(extent)))
                case _:
                    pass
        return tuple(found)

    def _home(self, expr: Expr) -> Frame:
        """Return the outermost block in which a value can be worked out."""
        needed = {part.dim.name for part in walk(expr) if isinstance(part, Position)}
        needed |= {part.dim.name for part in walk(expr) if isinstance(part, Edge)}
        named = names_of(expr)
        home = len(self.frames) - 1
        while home and not (
            self.frames[home].binds & needed
            or any(isinstance(op, Let) and op.name in named for op in self.frames[home].ops)
        ):
            home -= 1
        may_leave = isinstance(expr, Load) and self._is_inside(expr)
        for number in range(home + 1, len(self.frames)):
            # What is there in any case is read outside of the loops around a branch, too.
            is_once = any(frame.binds for frame in self.frames[home + 1 : number])
            if self.frames[number].conditional and not (may_leave and is_once):
                home = number
        return self.frames[home]

    def _is_inside(self, load: Load) -> bool:
        """Tell whether the loops alone keep what is read inside its array."""
        extents = self.program.array(load.array).shape
        plain = all(isinstance(at, Position) for at in load.subscripts) and None not in extents
        return plain and not self.held(load.array, load.subscripts)

    def with_other(self, name: str, other: float) -> None:
        """Let a load that nothing has looked at yet hold another number where it is masked."""
        ops = self.frames[-1].ops
        for number, op in enumerate(ops):
            if not (isinstance(op, Let) and op.name == name and isinstance(op.value, Load)):
                continue
            later = (e for o in ops[number + 1 :] for e in exprs_of(o))
            if any(isinstance(p, Name) and p.name == name for e in later for p in walk(e)):
                return
            load = replace(op.value, other=other)
            ops[number] = replace(op, value=load)
            self.read[name] = load

    def forget_order(self, name: str) -> None:
        """Drop what was known to be no larger than something, of values that mention a name."""
        self.nonpositive = {
            (expr, other)
            for expr, other in self.nonpositive
            if other != name and not mentions(expr, name)
        }

    def begin(self, array: str) -> None:
        """Begin to lower what an array or a scalar is set to."""
        self.begun = array
        self.rounded = self.rounding is not None and array not in self.rounding.recomputed

    def over(self, block: Name, dims: tuple[Dim, ...]) -> Name:
        """Give a block a name under which it has other dimensions, as many and as large."""
        key = replace(block, dims=dims)
        for frame in reversed(self.frames):
            if key in frame.named:
                return frame.named[key]
        names = "_".join(dim.name for dim in dims if dim not in block.dims)
        name = self.name(f"{block.name}_{names}", ("over", key))
        self.emit(Let(name, key, dims=dims))
        found = replace(key, name=name)
        self.frames[-1].named[key] = found
        return found

    def named(self, name: str, value: Expr, labels: tuple[str, ...] = (), note: str = "") -> Name:
        """Give a value a name in the innermost block."""
        dims = dims_of(value)
        self.emit(Let(name, value, labels, note, dims))
        if not mentions(value, name):
            self.defined[name] = value
        self.known.pop(name, None)
        return Name(name, dims, kind_of(value))


def _lengths(program: Program) -> Iterator[str]:
    """Yield the parameters that are surely not below 0: extents, and what a contract says is not.

    Any other integer is an argument of its own, such as the width of a window.
    """
    for array in program.arrays:
        yield from (extent.name for extent in array.shape if isinstance(extent, Param))
    for condition in program.stated:
        match condition:
            case Relation(">=", Param(name), Int(least)) if least >= 0:
                yield name
            case Relation(">", Param(name), Int(least)) if least >= -1:
                yield name
            case _:
                pass


def _goes_beyond(stop: Index, extent: Index) -> bool:
    """Tell whether a loop that ends at a size, give or take a few, may go beyond an extent."""
    ends = [form_of(each) for each in (stop, extent)]
    if any(
        len(form.terms) != 1 or not all(isinstance(term, Param) for term in form.terms)
        for form in ends
    ):
        return False
    left = ends[1].plus(ends[0], -1)
    return left.constant < 0 or any(count < 0 for count in left.terms.values())


def _surely_there(subscript: Expr, extent: Index | None) -> bool:
    """Tell whether a subscript is there as soon as what it is made of is known."""
    if isinstance(subscript, Number) and isinstance(extent, Int):
        return 0 <= subscript.value < extent.value
    return any(isinstance(part, Position | Name) for part in walk(subscript))


def _letters(subscripts: tuple[Expr, ...]) -> str:
    """Return the variables of vector subscripts, or of all where there are no vectors."""
    names = [
        part.dim.name
        for subscript in subscripts
        for part in walk(subscript)
        if isinstance(part, Position) and part.dim.is_vector
    ]
    if not names:
        names = [
            part.dim.name if isinstance(part, Position) else part.name
            for subscript in subscripts
            for part in walk(subscript)
            if isinstance(part, Position | Scalar)
        ]
    if not names:
        names = ["at"]
    names = list(dict.fromkeys(names))
    return "".join(names) if all(len(name) == 1 for name in names) else "_".join(names)


def _is_of_positions(condition: Expr) -> bool:
    """Tell whether a condition is worked out from indices and sizes, and reads nothing."""
    return not any(isinstance(part, Name | Load | Call) for part in walk(condition))
