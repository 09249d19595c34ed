"""The last product of a block, worked out beside the first one of the next block.

A matrix product that needs another product of the same block has to wait for it and for all that
lies between them, and while that is worked out no matrix instruction runs. Moved by one iteration
it does: the loop is rotated, nothing else changes, not even the order of the additions.

    for j:                                  P_late, j_late = 0, nowhere
        S = dot(Q, K[j])                    for j:
        P = f(S)                                S = dot(Q, K[j])
        O = dot(P, V[j], g(O))                  O = dot(P_late, V[j_late], O)
                                                P = f(S)
                                                O = g(O); P_late, j_late = P, j
                                            O = dot(P_late, V[j_late], O)

It is legal where nothing in the loop looks at O but g, and V[j] is a load that depends on the
iteration through j alone. Both forms stand in one kernel; the constexpr `LATE` picks one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from looptrans.blocks.block_ir.arithmetic import conjuncts, mapped, mentions
from looptrans.blocks.block_ir.expr import (
    Binary,
    Cast,
    Dim,
    Dot,
    Expr,
    Load,
    Name,
    Number,
    Option,
    Position,
    Where,
    dims_of,
    names_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    TileLoop,
    exprs_of,
    ops_in,
)
from looptrans.blocks.block_ir.program import Choice, Config, Kernel
from looptrans.ir.index import Extremum, Int

LATE = "LATE"
"""The constexpr: 0 for the plain form, 1 for the late one."""

_LEAST = -(1 << 31)


def with_late(kernel: Kernel) -> Kernel:
    """Return a kernel whose configurations also try the late form, where it has one."""
    if late_body(kernel) is None:
        return kernel
    narrow, wide = (
        Choice(_chosen(choice.default, 0), tuple(_chosen(each, 0) for each in choice.tuned))
        for choice in (kernel.narrow, kernel.wide)
    )
    # Many registers for each row leave no room for the block that is carried.
    rows = _rows(kernel)
    tried = [c for c in narrow.tuned if min((c.blocks[b] for b in rows), default=0) >= 64]
    late = tuple(_chosen(each, 1) for each in tried)
    return replace(kernel, narrow=Choice(narrow.default, narrow.tuned + late), wide=wide)


def has_late(kernel: Kernel) -> bool:
    """Tell whether the configurations of a kernel pick a form."""
    return LATE in kernel.narrow.default.blocks


def late_body(kernel: Kernel) -> tuple[Op, ...] | None:
    """Return what a program does, with both forms, or None where there is no late one."""
    taken = {op.name for op in ops_in(kernel.body) if isinstance(op, Let)}
    body = _late(kernel.body, taken)
    return None if body == kernel.body else body


def _chosen(config: Config, late: int) -> Config:
    return replace(config, blocks={**config.blocks, LATE: late})


def _rows(kernel: Kernel) -> list[str]:
    return [dim.block for dim in kernel.grid if dim.block is not None]


@dataclass(frozen=True, slots=True)
class _Product:
    """A product that can be late, in one of the loops that have it.

    Attributes:
        let: What adds it up.
        dot: The product.
        made: The operand that is worked out in the loop.
        load: What loads the other one.
        at: The place of `let` in the loop.
        after: The place behind which it is worked out late.
    """

    let: Let
    dot: Dot
    made: Expr
    load: Let
    at: int
    after: int


def _late(ops: tuple[Op, ...], taken: set[str]) -> tuple[Op, ...]:
    """Return operations with both forms of what can be late in loops among them."""
    loops = [op for op in ops if isinstance(op, TileLoop) and op.body]
    found = [_product(loop) for loop in loops]
    first = next((each for each in found if each is not None), None)
    if first is not None and all(each is None or _alike(first, each) for each in found):
        with_it = [loop for loop, each in zip(loops, found, strict=True) if each is not None]
        if _is_apart(ops, first.let.name, with_it):
            return _rotated(ops, dict(zip(map(id, loops), found, strict=True)), first, taken)
    return tuple(
        replace(op, body=_late(op.body, taken))
        if isinstance(op, ElementLoop | Branch | RowBlock)
        else op
        for op in ops
    )


def _product(loop: TileLoop) -> _Product | None:
    """Return the one product of a loop that can be late."""
    body = loop.body
    if any(not isinstance(op, Let) for op in body):
        return None
    lets = [op for op in body if isinstance(op, Let)]
    found = [each for at in range(len(lets)) if (each := _candidate(lets, at, loop.dim))]
    return found[0] if len(found) == 1 else None


def _candidate(lets: list[Let], at: int, tile: Dim) -> _Product | None:
    let = lets[at]
    dot = let.value
    if not isinstance(dot, Dot) or dot.accumulator is None or tile != dot.over:
        return None
    inside = [part for part in walk(dot.accumulator) if isinstance(part, Name)]
    if let.name not in {part.name for part in inside} or len(_setting(lets, let.name)) > 1:
        return None
    looked = sum(_mentions(each, let.name) for number, each in enumerate(lets) if number != at)
    if looked or any(mentions(side, let.name) for side in (dot.left, dot.right)):
        return None
    for made, other in ((dot.left, dot.right), (dot.right, dot.left)):
        load = _load(lets[:at], other, tile)
        after = _last_product(lets[:at], made)
        if load is not None and after is not None and _is_made(made):
            used = [each for each in lets if _mentions(each, load.name)]
            if len(used) == 1:
                return _Product(let, dot, made, load, at, after)
    return None


def _load(lets: list[Let], operand: Expr, tile: Dim) -> Let | None:
    """Return what loads an operand, where it depends on the iteration through the tile alone."""
    name = operand.operand if isinstance(operand, Cast) else operand
    if not isinstance(name, Name):
        return None
    setting = _setting(lets, name.name)
    if len(setting) != 1 or not isinstance(setting[0].value, Load):
        return None
    load = setting[0].value
    own = {let.name for let in lets}
    if any(isinstance(part, Name) and part.name in own for part in walk(load)):
        return None
    nested = any(isinstance(part, Load) for part in walk(load) if part is not load)
    masks = conjuncts(load.mask)
    mixed = any(tile in dims_of(mask) and len(dims_of(mask)) > 1 for mask in masks)
    return None if nested or mixed or (masks and load.other is None) else setting[0]


def _last_product(lets: list[Let], operand: Expr) -> int | None:
    """Return the place of the last product that an operand is worked out from."""
    needed = names_of(operand)
    for at in reversed(range(len(lets))):
        if lets[at].name in needed:
            parts = list(walk(lets[at].value))
            if any(isinstance(part, Dot) for part in parts):
                return at
            needed |= {part.name for part in parts if isinstance(part, Name)}
    return None


def _is_made(operand: Expr) -> bool:
    """Tell whether an operand is worked out, and not what an array holds."""
    return not isinstance(operand, Load) and not (isinstance(operand, Name) and operand.holds)


def _setting(lets: Iterable[Let], name: str) -> list[Let]:
    return [let for let in lets if let.name == name]


def _mentions(op: Op, name: str) -> bool:
    return any(mentions(expr, name) for expr in exprs_of(op))


def _alike(one: _Product, other: _Product) -> bool:
    """Tell whether two loops add the same product up."""
    return (
        one.let.name == other.let.name
        and dims_of(one.made) == dims_of(other.made)
        and _zero(one.made) == _zero(other.made)
        and _plain(one.load) == _plain(other.load)
    )


def _plain(let: Let) -> Expr:
    return replace(let.value, mask=None, other=None) if isinstance(let.value, Load) else let.value


def _zero(made: Expr) -> Expr:
    """Return zero in the element type of an operand."""
    return replace(made, operand=Number(0.0)) if isinstance(made, Cast) else Number(0.0)


def _is_apart(ops: tuple[Op, ...], name: str, loops: list[TileLoop]) -> bool:
    """Tell whether nothing from the first to the last of some loops looks at a name but they."""
    places = [at for at, op in enumerate(ops) if any(op is loop for loop in loops)]
    between = [op for op in ops[places[0] : places[-1]] if not any(op is loop for loop in loops)]
    return not any(
        _mentions(op, name) or (isinstance(op, Let) and op.name == name) for op in ops_in(between)
    )


def _rotated(
    ops: tuple[Op, ...], found: dict[int, _Product | None], first: _Product, taken: set[str]
) -> tuple[Op, ...]:
    tile = first.dot.over
    stem = first.made.operand if isinstance(first.made, Cast) else first.made
    carried = Name(
        _free(f"{stem.name if isinstance(stem, Name) else first.let.name}_late", taken),
        dims_of(first.made),
    )
    place = Name(_free(f"{tile.name}_late", taken), (tile,), "int")
    start: tuple[Op, ...] = (
        Let(carried.name, _zero(first.made), dims=carried.dims),
        Let(place.name, _nowhere(tile), note="no block yet", dims=(tile,)),
    )
    last = max(at for at, op in enumerate(ops) if found.get(id(op)) is not None)
    changed: list[Op] = []
    for at, op in enumerate(ops):
        product = found.get(id(op))
        if product is None or not isinstance(op, TileLoop):
            changed.append(op)
            continue
        if start:
            changed.append(Branch(Option(LATE), start))
            start = ()
        changed.append(replace(op, body=tuple(_both(op, product, carried, place))))
        if at == last:
            changed.append(Branch(Option(LATE), _done(product, carried, place)))
    return tuple(changed)


def _both(loop: TileLoop, product: _Product, carried: Name, place: Name) -> Iterator[Op]:
    let, load = product.let, product.load
    for at, op in enumerate(loop.body):
        if op is load:
            continue
        if at != product.at:
            yield op
        if at == product.after:
            yield Branch(Option(LATE), _done(product, carried, place))
        if at == product.at:
            assert product.dot.accumulator is not None
            moved = product.dot.accumulator
            own: tuple[Op, ...] = () if moved == Name(let.name, let.dims) else (_kept(let, moved),)
            own += (
                Let(carried.name, product.made, dims=carried.dims),
                Let(place.name, _position(load, place), dims=place.dims),
            )
            yield Branch(Option(LATE), own, (load, let))


def _kept(let: Let, moved: Expr) -> Let:
    return replace(let, value=moved, note="")


def _done(product: _Product, carried: Name, place: Name) -> tuple[Op, ...]:
    """Return what is left of the block before."""
    let, load, dot = product.let, product.load, product.dot
    total = Name(let.name, let.dims or dims_of(dot))
    sides = (carried, dot.right) if dot.left is product.made else (dot.left, carried)
    late = replace(dot, left=sides[0], right=sides[1], accumulator=total)
    assert isinstance(load.value, Load)
    there: Expr = Binary(">", place, _nowhere(place.dims[0]))
    if _nowhere(place.dims[0]) == Number(-1):
        there = Binary(">=", place, Number(0))
    for mask in conjuncts(load.value.mask):
        if place.dims[0] not in dims_of(mask):
            there = Binary("and", there, mask)

    def change(part: Expr) -> Expr | None:
        return place if part == Position(place.dims[0]) else None

    subscripts = tuple(mapped(each, change) for each in load.value.subscripts)
    value = replace(load.value, subscripts=subscripts, mask=there, other=0.0)
    return (replace(load, value=value), replace(let, value=late, note="of the block before"))


def _position(load: Let, place: Name) -> Expr:
    """Return where the block is, or nowhere where the load is masked."""
    assert isinstance(load.value, Load)
    tile = place.dims[0]
    masks = [mask for mask in conjuncts(load.value.mask) if tile in dims_of(mask)]
    if not masks:
        return Position(tile)
    there = masks[0]
    for mask in masks[1:]:
        there = Binary("and", there, mask)
    return Where(there, Position(tile), _nowhere(tile))


def _nowhere(tile: Dim) -> Number:
    """Return a number that is below all iterations of a loop, which may begin below 0."""
    match tile.start:
        case Int(value) if value >= 0:
            return Number(-1)
        case Extremum("max", arguments) if any(
            isinstance(each, Int) and each.value >= 0 for each in arguments
        ):
            return Number(-1)
        case _:
            return Number(_LEAST)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
