"""Expressions of the block IR in Triton.

A value has the dimensions that `dims_of` says, in their order; where it meets one that has more, it
is broadcast: `m[:, None]`. A number is a number, never a block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from looptrans.blocks.block_ir.expr import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Dim,
    Dot,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Option,
    Position,
    Reduce,
    Scalar,
    Scan,
    Sign,
    Unary,
    Where,
    dims_of,
    kind_of,
    walk,
)
from looptrans.blocks.block_ir.identities import identity
from looptrans.blocks.block_ir.program import Kernel
from looptrans.blocks.passes.described import Described
from looptrans.emit.first_blocks import FirstBlock, Key
from looptrans.emit.functions import (
    ATOMIC,
    DIRECT,
    IDENTITY,
    JOINED,
    REDUCTIONS,
    SCANS,
    SCANS_BEFORE,
)
from looptrans.emit.mentions import Mentions
from looptrans.emit.precision import Precision
from looptrans.emit.widths import Widths
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Param
from looptrans.ir.monoids import Folding
from looptrans.ir.program import NARROW

CHOICE, NOT, COMPARE, OR, AND, SUM, PRODUCT, SIGN, ATOM = range(9)

_BINDING = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT}
NEGATED: Mapping[str, BinaryOp] = {
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "==": "!=",
    "!=": "==",
}
_LOGIC = {"and": (" & ", AND), "or": (" | ", OR)}
_CASTS = {"float8_e4m3": "float8e4nv", "float8_e5m2": "float8e5", "bool": "int1"}
_MOST_FACTORS = 4


class Text(NamedTuple):
    """An expression as text, and how tightly its outermost operator binds."""

    text: str
    binding: int

    def within(self, needed: int) -> str:
        """Return the text, in parentheses where it binds looser than `needed`."""
        return f"({self.text})" if self.binding < needed else self.text


class Expressions(Mentions):
    """Prints the expressions of one kernel.

    Attributes:
        tensors: Names of numbers that are tensors in the interpreter too, and so have methods;
            arguments and variables of loops are numbers of Python there.
        hoisted: For each array, the dimensions whose part of the offset its pointer has already.
        widths: How wide its integers are.
        flipped: Names of loads whose two dimensions stand in the order of the array, not of `Dim`.
        at: Pointers to first blocks, made before the loops over blocks.
        counted: Dimensions of loops that count in 64 bits, where a block begins at an `INDEX`.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.hoisted: dict[str, frozenset[int]] = {}
        self.widths = Widths()
        self.flipped: set[str] = set()
        self.tensors: set[str] = set()
        self.at: dict[Key, FirstBlock] = {}
        self.counted: set[Dim] = set()
        self._precisions = Precision(kernel)
        self._narrow = {array.name for array in kernel.arrays if array.dtype in NARROW}

    # Index expressions.

    def from_index(self, index: Index) -> Expr:
        """Return a bound of a dimension as an expression."""
        match index:
            case Int(value):
                return Number(value)
            case Param(name):
                return Scalar(name)
            case Neg(operand):
                return Unary("-", self.from_index(operand))
            case Arith(op, left, right):
                return Binary(op, self.from_index(left), self.from_index(right))
            case Extremum(op, arguments):
                return Call(op, tuple(self.from_index(argument) for argument in arguments))
            case Let(_, value):
                return self.from_index(value)
            case _:
                raise ValueError(f"the bound {index} of a dimension is no number before the launch")

    # Expressions.

    def show(self, expr: Expr, dims: tuple[Dim, ...] = (), needed: int = CHOICE) -> str:
        """Return the text of an expression, broadcast to `dims` unless it is a number."""
        return self._shaped(expr, dims or dims_of(expr)).within(needed)

    def _shaped(self, expr: Expr, dims: tuple[Dim, ...]) -> Text:
        own = dims_of(expr)
        if not own or own == dims:
            return self._plain(expr, own)
        if self._is_mask_of_lanes(expr) or not isinstance(expr, Binary | Unary):
            return Text(self._plain(expr, own).within(ATOM) + _broadcast(own, dims), ATOM)
        if kind_of(expr) == "float":
            return Text(self._plain(expr, own).within(ATOM) + _broadcast(own, dims), ATOM)
        return self._operators(expr, dims)

    def _plain(self, expr: Expr, own: tuple[Dim, ...]) -> Text:
        match expr:
            case Number(value):
                return number(value)
            case Scalar(name):
                return Text(self.scalar(name), ATOM)
            case Option(name):
                return Text(self.block(name), ATOM)
            case Position(dim):
                return Text(self.dim(dim), ATOM)
            case Edge(dim, which):
                return Text(self.first(dim) if which == "first" else self.last(dim), ATOM)
            case Name(name):
                return Text(self.scope.name("name", name, wanted=name), ATOM)
            case Load():
                return self._load(expr, own)
            case Unary() | Binary():
                return self._operators(expr, own)
            case Call(function, arguments):
                return self._call(function, arguments, own)
            case Sign(names):
                return Text(" and ".join(map(self.sign, names)), AND if len(names) > 1 else ATOM)
            case Where(Sign() as sign, chosen, otherwise):
                # Known when the kernel is compiled, so that a factor of 1 is gone then.
                texts = [self.show(part, own) for part in (chosen, sign, otherwise)]
                return Text(f"{texts[0]} if {texts[1]} else {texts[2]}", CHOICE)
            case Where(condition, chosen, otherwise):
                parts = [self.show(part, own) for part in (condition, chosen, otherwise)]
                return _called("tl.where", *parts)
            case Cast(operand, to, like):
                return self._cast(operand, to, like)
            case Reduce(op, over, operand):
                return self._reduce(op, over, operand)
            case Scan():
                return self._scan(expr)
            case Dot():
                return self._dot(expr)

    def _operators(self, expr: Unary | Binary, dims: tuple[Dim, ...]) -> Text:
        if isinstance(expr, Binary) and self._is_mask_of_lanes(expr):
            dim = expr.left.dim if isinstance(expr.left, Position) else None
            assert dim is not None
            return Text(self.inside(dim), ATOM)
        match expr:
            case Unary("not", Binary(op, left, right)) if _is_negatable(op, left, right):
                return self._operators(Binary(NEGATED[op], left, right), dims)
            case Unary("not", operand):
                if dims_of(operand):
                    return Text("~" + self._shaped(operand, dims).within(ATOM), SIGN)
                return Text("not " + self._shaped(operand, dims).within(COMPARE), NOT)
            case Unary(_, operand):
                return Text("-" + self._shaped(operand, dims).within(SIGN), SIGN)
            case Binary("and" | "or" as op, left, right):
                sign, binding = _LOGIC[op]
                # A part that is itself the other operator reads better in parentheses.
                parts = [
                    self._truth(part, dims).within(binding if _is_logic(part, op) else SUM)
                    for part in (left, right)
                ]
                return Text(sign.join(parts), binding)
            case Binary(op, Position(dim), right) if _is_of_rows(op, dim, right):
                # Counted from the first of the block the left side is the same for all blocks,
                # and no number of the loop, which the compiler would compare in 64 bits.
                block = f"tl.arange(0, {self.block(dim.block or '')})" + _broadcast((dim,), dims)
                rest = self._shaped(Binary("-", right, Edge(dim, "first")), dims)
                return Text(f"{block} {op} {rest.within(SUM)}", COMPARE)
            case Binary(op, left, right):
                binding = _BINDING.get(op, COMPARE)
                below = SUM if binding == COMPARE else binding
                first = self._shaped(left, dims).within(below)
                second = self._shaped(right, dims).within(below + (binding != COMPARE))
                if op == "/" and _is_of_arguments(expr):
                    # As Python would work it out, which raises where the divisor is 0.
                    second = f"tl.cast({self._shaped(right, dims).text}, tl.float32)"
                return Text(f"{first} {op} {second}", binding)

    def _is_mask_of_lanes(self, expr: Expr) -> bool:
        """Tell whether an expression asks that lanes be below the end of their dimension."""
        match expr:
            case Binary("<", Position(dim), right):
                return dim.role == "lanes" and right == self.from_index(dim.stop)
            case _:
                return False

    def lane_masks(self, exprs: tuple[Expr, ...]) -> set[Dim]:
        """Return the lanes that are masked somewhere in the expressions."""
        return {
            node.left.dim
            for expr in exprs
            for node in walk(expr)
            if isinstance(node, Binary)
            and isinstance(node.left, Position)
            and self._is_mask_of_lanes(node)
        }

    def _call(self, function: str, arguments: tuple[Expr, ...], own: tuple[Dim, ...]) -> Text:
        if function in IDENTITY:
            return self._shaped(arguments[0], own)
        if function == "pow":
            return self._power(arguments[0], arguments[1], own)
        shown = [self.show(argument, own) for argument in arguments]
        if function in JOINED:
            joined = shown[0]
            for argument in shown[1:]:
                joined = f"{JOINED[function]}({joined}, {argument})"
            return Text(joined, ATOM)
        if function in DIRECT:
            return _called(DIRECT[function], *shown)
        if f"_{function}" not in ("_tanh", "_tanh_slope", "_uniform"):
            raise ValueError(f"{function} has no counterpart in Triton")
        self.used.helpers |= {f"_{function}", *(["_decay"] if function != "uniform" else [])}
        if function == "uniform":
            shown += ["0"] * (4 - len(shown))
        return _called(f"_{function}", *shown)

    def _power(self, base: Expr, exponent: Expr, own: tuple[Dim, ...]) -> Text:
        match exponent:
            case Number(value) if float(value).is_integer() and value >= 1:
                times = int(value)
                shown = self._shaped(base, own)
                if times == 1:
                    return shown
                if shown.binding == ATOM and shown.text.isidentifier() and times <= _MOST_FACTORS:
                    return Text(" * ".join([shown.text] * times), PRODUCT)
                helper = "_square" if times == 2 else "_power"
                self.used.helpers.add(helper)
                return _called(helper, shown.text, *([str(times)] if times > 2 else []))
            case Number(value) if value == 0:
                return number(1.0)
            case Number(value) if float(value).is_integer():
                positive = self._power(base, Number(-int(value)), own)
                return Text(f"1.0 / {positive.within(SIGN)}", PRODUCT)
            case Number(value) if value == 0.5:
                return _called("tl.sqrt_rn", self.show(base, own))
            case Number(value) if value == -0.5:
                return Text(f"1.0 / tl.sqrt_rn({self.show(base, own)})", PRODUCT)
            case _:
                self.used.helpers.add("_real_power")
                return _called("_real_power", self.show(base, own), self.show(exponent, own))

    def _cast(self, operand: Expr, to: str, like: str | None) -> Text:
        if like is not None:
            kind = f"{self.pointer(like)}.dtype.element_ty"
        else:
            kind = f"tl.{_CASTS.get(to, to)}"
        shown = self._shaped(operand, dims_of(operand))
        if to == "bool" and like is None:
            return Text(f"{shown.within(SUM)} != 0", COMPARE)
        if dims_of(operand) or self.is_tensor(operand):
            return Text(f"{shown.within(ATOM)}.to({kind})", ATOM)
        return _called("tl.cast", shown.text, kind)

    def _reduce(self, op: str, over: Dim, operand: Expr) -> Text:
        dims = dims_of(operand)
        axis = dims.index(over)
        if op in REDUCTIONS:
            return _called(REDUCTIONS[op], self.show(operand), f"axis={axis}")
        self.used.helpers.add("_multiply")
        return _called("tl.reduce", self.show(operand), str(axis), "_multiply")

    def _scan(self, scan: Scan) -> Text:
        axis = str(dims_of(scan).index(scan.over))
        shown = self.show(scan.operand, dims_of(scan))
        if scan.steps:
            helper = "_steps_before" if scan.before else "_steps"
            self.used.helpers.add(helper)
            more = [self.show(each, dims_of(scan)) for each in scan.steps]
            return _called(helper, more[0], shown, *more[1:], axis)
        if scan.before:
            helper = SCANS_BEFORE[scan.op]
            self.used.helpers.add(helper)
            more = [] if scan.op in SCANS else [number(identity(scan.op, scan.operand)).text]
            return _called(helper, shown, axis, *more)
        if scan.op in SCANS:
            return _called(SCANS[scan.op], shown, f"axis={axis}")
        helper = "_greater" if scan.op == "max" else "_smaller"
        self.used.helpers.add(helper)
        return _called("tl.associative_scan", shown, axis, helper)

    def _dot(self, dot: Dot) -> Text:
        left, right = dot.left, dot.right
        rows, columns = dot.rows, dot.columns
        if columns.order < rows.order:
            left, right, rows, columns = right, left, columns, rows
        arguments = [
            self._operand(left, (rows, dot.over)),
            self._operand(right, (dot.over, columns)),
        ]
        if dot.accumulator is not None:
            arguments.append(self.show(dot.accumulator, (rows, columns)))
        way, array = self._precisions.way(dot)
        if way == "float32":
            return _called("tl.dot", *arguments, 'input_precision="ieee"')
        kind = f"{self.pointer(array)}.dtype.element_ty"
        if way == "widened":
            self.used.helpers.add("_dot_widened")
            split = "right" if self._precisions.is_widened(left) else "left"
            total = () if dot.accumulator is not None else ("None",)
            return _called("_dot_widened", *arguments, *total, kind, f'"{split}"')
        if way == "pairs":
            self.used.helpers.add("_PAIRS")
        other = "_PAIRS" if way == "pairs" else "None"
        precision = f'"ieee" if {kind} == tl.float32 else {other}'
        return _called("tl.dot", *arguments, f"input_precision={precision}")

    def _operand(self, expr: Expr, dims: tuple[Dim, Dim]) -> str:
        """Return an operand of a matrix product, transposed where its dimensions are."""
        shown = self.show(expr)
        own = dims_of(expr)
        if isinstance(expr, Name) and expr.name in self.flipped:
            own = own[::-1]
        if own == dims:
            return shown
        if own != dims[::-1]:
            names = " and ".join(dim.name for dim in dims)
            raise ValueError(f"an operand of a matrix product lacks one of {names}")
        return f"tl.trans({shown})"

    def flipped_load(self, load: Load) -> str:
        """Return a load whose two dimensions stand in the order of the array."""
        return self._load(load, dims_of(load)[::-1]).text

    def _load(self, load: Load, own: tuple[Dim, ...]) -> Text:
        arguments = [self.address(load.array, load.subscripts, own)]
        if load.mask is not None:
            arguments.append(f"mask={self._mask(load.mask, own, load.array)}")
            if load.other is not None:
                arguments.append(f"other={number(load.other).text}")
        loaded = _called("tl.load", *arguments)
        # What integers of few bits are added to would have as few.
        return Text(f"{loaded.text}.to(tl.int32)", ATOM) if load.array in self._narrow else loaded

    def _mask(self, mask: Expr, own: tuple[Dim, ...], array: str) -> str:
        if not set(dims_of(mask)) <= set(own):
            names = ", ".join(dim.name for dim in dims_of(mask) if dim not in own)
            raise ValueError(f"the mask of {array} has {names}, which its subscripts have not")
        return self._truth(mask, own).within(NOT)

    def _truth(self, part: Expr, dims: tuple[Dim, ...]) -> Text:
        """Return a part of a mask.

        The interpreter takes a comparison of numbers for an integer when it is made a block.
        """
        text = self._shaped(part, dims)
        if dims and not dims_of(part) and not isinstance(part, Number):
            plain = all(
                isinstance(node, Number | Binary | Unary)
                or (isinstance(node, Position) and node.dim.role == "element")
                for node in walk(part)
            )
            return text if plain else Text(f"tl.where({text.text}, True, False)", ATOM)
        return text

    def store(
        self,
        array: str,
        subscripts: tuple[Expr, ...],
        value: Expr,
        mask: Expr | None,
        folded: Folding | None = None,
    ) -> str:
        """Return the text of a store, or of what is joined to what is in memory."""
        own = dims_of(Load(array, subscripts))
        if not set(dims_of(value)) <= set(own):
            names = ", ".join(dim.name for dim in dims_of(value) if dim not in own)
            raise ValueError(
                f"what is stored in {array} has {names}, which its subscripts have not"
            )
        arguments = [self.address(array, subscripts, own), self.show(value, own)]
        if mask is not None:
            arguments.append(f"mask={self._mask(mask, own, array)}")
        if folded is not None:
            return _called(ATOMIC[folded], *arguments, 'sem="relaxed"').text
        return f"tl.store({', '.join(arguments)})"

    def address(self, array: str, subscripts: tuple[Expr, ...], dims: tuple[Dim, ...]) -> str:
        """Return the text of the pointers to the elements of an access."""
        found = self.at.get((array, subscripts))
        if found is not None:
            begin = self.first(found.dim)
            if found.dim not in self.counted:
                begin = f"tl.cast({begin}, {self.index_type()})"
            return f"{self.first_block(found)} + {begin} * {self.stride(array, found.axis)}"
        terms = [self.pointer(array)]
        for axis, subscript in enumerate(subscripts):
            if axis not in self.hoisted.get(array, ()) and subscript != Number(0):
                terms.append(self.offset(array, axis, subscript, dims))
        return " + ".join(terms)

    def description(self, found: Described) -> str:
        """Return the text that tells the GPU how an array lies."""
        base = [self.pointer(found.array)]
        for axis, subscript in found.fixed:
            if axis not in self.hoisted.get(found.array, ()) and subscript != Number(0):
                base.append(self.offset(found.array, axis, subscript, ()))
        ends = ", ".join(self.show(self.from_index(extent)) for extent in found.extents)
        strides = f"{self.stride(found.array, found.axes[0])}, 1"
        sides = self.shape(found.dims)
        return f"tl.make_tensor_descriptor({' + '.join(base)}, [{ends}], [{strides}], {sides})"

    def copied(self, found: Described, own: tuple[Dim, ...]) -> str:
        """Return the text of a block that the GPU has copied by itself.

        Args:
            found: How it was told of the array.
            own: The dimensions of the block, in their order.
        """
        places = [
            "0" if dim.role == "lanes" else f"tl.cast({self.first(dim)}, tl.int32)"
            for dim in found.dims
        ]
        block = f"{self.blocks_of(found)}.load([{', '.join(places)}])"
        return block if own == found.dims else f"tl.trans({block})"

    def first_block_address(self, found: FirstBlock) -> str:
        """Return the text of the pointers to the first block of a load, were that at 0."""
        dims = found.dims
        terms = [self.pointer(found.array)]
        for axis, own in enumerate(found.subscripts):
            subscript = found.rest if axis == found.axis else own
            if axis == found.axis:
                begun = self.begun(found.dim) + _broadcast_to((found.dim,), dims)
                terms.append(f"{begun} * {self.stride(found.array, axis)}")
            if axis not in self.hoisted.get(found.array, ()) and subscript != Number(0):
                terms.append(self.offset(found.array, axis, subscript, dims))
        return " + ".join(terms)

    def offset(self, array: str, axis: int, subscript: Expr, dims: tuple[Dim, ...]) -> str:
        """Return the part of an offset that one subscript is responsible for."""
        stride = self.stride(array, axis)
        if subscript == Number(1):
            return stride
        shown = self._shaped(subscript, dims)
        if self.widths.is_wide(subscript):
            return f"{shown.within(PRODUCT)} * {stride}"
        kind = self.index_type()
        if isinstance(subscript, Load) or (isinstance(subscript, Name) and subscript.dims):
            return f"{shown.text}.to({kind}) * {stride}"
        return f"tl.cast({shown.text}, {kind}) * {stride}"

    def is_tensor(self, expr: Expr) -> bool:
        """Tell whether a number is a tensor in the interpreter too."""
        return any(
            isinstance(node, Load | Reduce)
            or (isinstance(node, Name) and node.name in self.tensors)
            or (isinstance(node, Position) and node.dim.role == "program")
            for node in walk(expr)
        )


def _is_of_arguments(division: Binary) -> bool:
    """Tell whether a division is of numbers alone that are arguments, or worked out from those."""
    plain = all(isinstance(part, Binary | Unary | Number | Scalar) for part in walk(division))
    return plain and any(isinstance(part, Scalar) for part in walk(division.right))


def number(value: float | int | bool) -> Text:
    """Return a literal as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return Text(f'float("{value}")', ATOM)
    text = repr(value)
    return Text(text, SIGN if text.startswith("-") else ATOM)


def _called(function: str, *arguments: str) -> Text:
    return Text(f"{function}({', '.join(arguments)})", ATOM)


def _is_negatable(op: str, left: Expr, right: Expr) -> bool:
    """Tell whether a comparison has an opposite: an order of numbers that may be nan has none."""
    if op in ("==", "!="):
        return True
    return op in NEGATED and "float" not in (kind_of(left), kind_of(right))


def _is_logic(expr: Expr, op: str) -> bool:
    return isinstance(expr, Binary) and expr.op == op


def _is_of_rows(op: str, dim: Dim, other: Expr) -> bool:
    """Tell whether the iterations of a tile are compared with whole numbers of rows."""
    is_compared = op in NEGATED and dim.role == "tile" and kind_of(other) == "int"
    return is_compared and bool(dims_of(other)) and dim not in dims_of(other)


def _broadcast_to(own: tuple[Dim, ...], dims: tuple[Dim, ...]) -> str:
    """Return the subscript of a block that is broadcast, nothing where it has the dimensions."""
    return "" if own == dims else _broadcast(own, dims)


def _broadcast(own: tuple[Dim, ...], dims: tuple[Dim, ...]) -> str:
    """Return the subscript that gives a block of `own` dimensions the rank of `dims`."""
    missing = [dim.name for dim in own if dim not in dims]
    if missing:
        raise ValueError(f"a block over {', '.join(missing)} stands where it has no room")
    return f"[{', '.join(':' if dim in own else 'None' for dim in dims)}]"
