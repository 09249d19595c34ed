"""The block IR as text to be read: every value with its dimensions, every loop with its kind.

A value is followed by its dimensions, an array that is loaded or stored by its subscripts:

    kernel scores_kernel
      rows      i in range(0, M), BLOCK_I at a time
      tile      j in range(0, N), BLOCK_J at a time
      reads     Q[M, E], K[N, E]
      ...
      Q_ie[i, e] = load Q[i, e] if i < M and e < E else 0.0  # S1
      for j in blocks of BLOCK_J from 0 to j_full:  # full blocks
        S_ij[i, j] = dot(Q_ie[i, e], K_je[j, e])  # S1
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from looptrans.blocks.block_ir.expr import (
    Binary,
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
)
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, RowBlock, Store, TileLoop
from looptrans.blocks.block_ir.program import (
    ArrayArgument,
    BlockProgram,
    Choice,
    Config,
    Filled,
    Kernel,
)
from looptrans.ir.index import Index
from looptrans.ir.listing import condition_text, index_text
from looptrans.ir.monoids import Folding

INDENT = "  "

# How tightly each form binds; a looser form inside a tighter one is put in parentheses.
CHOICE, OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, ATOM = range(9)
_BINDING = {
    "or": OR,
    "and": AND,
    "<": COMPARE,
    "<=": COMPARE,
    ">": COMPARE,
    ">=": COMPARE,
    "==": COMPARE,
    "!=": COMPARE,
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "//": PRODUCT,
    "%": PRODUCT,
}
_STORES: dict[Folding | None, tuple[str, str]] = {
    None: ("store", "="),
    "sum": ("add to", "+="),
    "max": ("raise", "to at least"),
    "min": ("lower", "to at most"),
}
_REDUCTIONS = {"+": "sum", "*": "product", "max": "max", "min": "min"}


def blocks_text(program: BlockProgram) -> str:
    """Print a block program: what the launcher makes, then every kernel."""
    lines = [f"{program.listing.name} in blocks"]
    lines += [f"{INDENT}{line}" for line in _launcher(program)]
    for kernel in program.kernels:
        lines += ["", f"kernel {kernel.name}"]
        lines += [f"{INDENT}{line}" for line in _head(kernel)]
        lines += ["", *_body(kernel.body, 1)]
    return "".join(f"{line}\n" for line in lines)


def _launcher(program: BlockProgram) -> Iterable[str]:
    yield from (f"makes     {_filled(made)}" for made in program.made)
    if program.outputs:
        yield f"returns   {', '.join(program.outputs)}"
    yield from (f"assumes   {condition_text(each)}" for each in program.assumptions)
    yield from (f"note      {note}" for note in program.notes)


def _filled(made: Filled) -> str:
    text = f"{made.array}[{_indices(made.shape)}]" if made.shape else made.array
    words = [f"filled with {_number(made.fill)}"] if made.fill is not None else []
    if made.dtype is not None:
        words.append(f"of type {made.dtype}")
    elif made.element != "float":
        words.append(f"of type {made.element}")
    return ", ".join([text, *words])


def _head(kernel: Kernel) -> Iterable[str]:
    grid = ", ".join(dim.name for dim in kernel.grid) or "one program"
    order = ", in groups that share operands" if kernel.grouped else ""
    order += f", {kernel.grid[-1].name} from the last block on" if kernel.last_first else ""
    yield f"grid      {grid}{order}"
    for dim in kernel.dims:
        yield f"{dim.role:<10}{_dim(dim)}"
    for word, access in (
        ("reads", "in"),
        ("writes", "out"),
        ("updates", "inout"),
        ("adds to", "added"),
    ):
        arrays = [array for array in kernel.arrays if array.access == access]
        if arrays:
            yield f"{word:<10}{', '.join(map(_array, arrays))}"
    if kernel.restored:
        yield f"restored  {', '.join(kernel.restored)}"
    if kernel.scalars:
        yield f"numbers   {', '.join(scalar.name for scalar in kernel.scalars)}"
    if kernel.constants:
        yield f"constant  {', '.join(kernel.constants)}"
    yield f"16 bits   {_choice(kernel.narrow)}"
    yield f"32 bits   {_choice(kernel.wide)}"


def _dim(dim: Dim) -> str:
    step = f", {dim.step}" if dim.step != 1 else ""
    text = f"{dim.name} in range({index_text(dim.start)}, {index_text(dim.stop)}{step})"
    if dim.most is not None:
        text += f", at most {index_text(dim.most)}"
    match dim.role:
        case "rows" | "tile":
            return f"{text}, {dim.block} at a time"
        case "lanes":
            return f"{text}, all in {dim.block}"
        case _:
            return text


def _array(array: ArrayArgument) -> str:
    extents = ["?" if extent is None else index_text(extent) for extent in array.shape]
    text = f"{array.name}[{', '.join(extents)}]" if extents else array.name
    return text if array.element == "float" else f"{text} of type {array.element}"


def _indices(indices: Iterable[Index]) -> str:
    return ", ".join(index_text(index) for index in indices)


def _choice(choice: Choice) -> str:
    others = sum(config != choice.default for config in choice.tuned)
    return _config(choice.default) + (f"; {others} more tried on a GPU" if others else "")


def _config(config: Config) -> str:
    blocks = [f"{name}={size}" for name, size in config.blocks.items()]
    warps, stages = _count(config.warps, "warp"), _count(config.stages, "stage")
    return ", ".join([*blocks, warps, stages])


def _count(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _body(ops: Iterable[Op], depth: int) -> Iterable[str]:
    for op in ops:
        yield INDENT * depth + _op(op)
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            yield from _body(op.body, depth + 1)
        if isinstance(op, Branch) and op.otherwise:
            yield INDENT * depth + "else:"
            yield from _body(op.otherwise, depth + 1)


def _op(op: Op) -> str:
    match op:
        case Let(name, value, labels, note, dims):
            return _commented(f"{name}{_dims(dims)} = {expr_text(value)}", labels, note)
        case Store(array, subscripts, value, mask, labels, note, folded):
            how, sign = _STORES[folded]
            text = f"{how} {array}{_subscripts(subscripts)} {sign} {expr_text(value)}"
            if mask is not None:
                text += f" where {expr_text(mask)}"
            return _commented(text, labels, note)
        case TileLoop(dim, start, stop, kind, _, note):
            text = f"for {dim.name} in blocks of {dim.block} from {expr_text(start)}"
            words = () if kind in note else (kind,)
            return _commented(f"{text} to {expr_text(stop)}:", words, note)
        case ElementLoop(dim, start, stop, _, reason):
            step = f", {dim.step}" if dim.step != 1 else ""
            text = f"for {dim.name} in range({expr_text(start)}, {expr_text(stop)}{step}):"
            return _commented(text, ("one at a time",), reason)
        case Branch(condition, _):
            return f"if {expr_text(condition)}:"
        case RowBlock(dim, start, stop, _):
            text = f"one block of {dim.block} for {dim.name} from {expr_text(start)}"
            return f"{text} to {expr_text(stop)}, where there is one:"


def _commented(text: str, labels: tuple[str, ...], note: str) -> str:
    comment = ": ".join(part for part in (", ".join(labels), note) if part)
    return f"{text}  # {comment}" if comment else text


def _dims(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(dim.name for dim in dims)}]" if dims else ""


def _subscripts(subscripts: tuple[Expr, ...]) -> str:
    return f"[{', '.join(expr_text(each) for each in subscripts)}]" if subscripts else ""


def _number(value: float | int | bool) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _wrap(text: str, binding: int, needed: int) -> str:
    return f"({text})" if binding < needed else text


def expr_text(expr: Expr, needed: int = CHOICE) -> str:
    """Print an expression; parenthesized where it binds looser than `needed`."""
    match expr:
        case Number(value):
            text = _number(value)
            return _wrap(text, SIGN if text.startswith("-") else ATOM, needed)
        case Scalar(name) | Option(name):
            return name
        case Sign(names):
            return _wrap(" and ".join(f"{name} > 0" for name in names), ATOM - 1, needed)
        case Position(dim):
            return dim.name
        case Edge(dim, which):
            return f"{which}({dim.name})"
        case Name(name, dims):
            return f"{name}{_dims(dims)}"
        case Load(array, subscripts, mask, other):
            text = f"load {array}{_subscripts(subscripts)}"
            if mask is not None:
                filler = "?" if other is None else _number(other)
                text += f" if {expr_text(mask, OR)} else {filler}"
            return _wrap(text, CHOICE, needed)
        case Unary("not", operand):
            return _wrap(f"not {expr_text(operand, NOT)}", NOT, needed)
        case Unary(op, operand):
            return _wrap(f"{op}{expr_text(operand, SIGN)}", SIGN, needed)
        case Binary(op, left, right):
            binding = _BINDING[op]
            first = expr_text(left, SUM if binding == COMPARE else binding)
            text = f"{first} {op} {expr_text(right, binding + 1)}"
            return _wrap(text, binding, needed)
        case Call(function, arguments):
            return f"{function}({', '.join(expr_text(each) for each in arguments)})"
        case Where(condition, chosen, otherwise):
            parts = (condition, chosen, otherwise)
            return f"where({', '.join(expr_text(each) for each in parts)})"
        case Cast(operand, to, like):
            kind = to if like is None else f"as_{like}"
            return f"{kind}({expr_text(operand)})"
        case Reduce(op, over, operand):
            return f"{_REDUCTIONS[op]}({expr_text(operand, OR)} for {over.name})"
        case Scan(_, over, operand, _, (factor, *_)):
            step = f"{expr_text(factor, PRODUCT)} * y + {expr_text(operand, PRODUCT)}"
            return f"steps(y = {step} for {over.name})"
        case Scan(op, over, operand, before):
            place = "before" if before else "up to"
            return f"{_REDUCTIONS[op]}({expr_text(operand, OR)} {place} {over.name})"
        case Dot(left, right, _, _, _, accumulator):
            product = f"dot({expr_text(left)}, {expr_text(right)})"
            if accumulator is None:
                return product
            return _wrap(f"{expr_text(accumulator, SUM)} + {product}", SUM, needed)
