"""The canonical listing: a Program printed as the Python text that parses back to it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass

from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Opaque, Param, Var
from looptrans.ir.program import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Contract,
    Declaration,
    If,
    Loop,
    Node,
    Program,
    Section,
)
from looptrans.ir.value import (
    WHOLE,
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Create,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Subscript,
    Unary,
    Value,
    Whole,
    rank_of,
)

INDENT = "    "

# How tightly each form binds, as in Python's grammar; a looser form inside a tighter one is
# put in parentheses.
TERNARY, OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, POWER, ATOM = range(10)
_BINDING = {
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "//": PRODUCT,
    "%": PRODUCT,
    "@": PRODUCT,
    "**": POWER,
}


def _wrap(text: str, binding: int, needed: int) -> str:
    return f"({text})" if binding < needed else text


def index_text(index: Index, needed: int = TERNARY) -> str:
    """Print an index expression; parenthesized where it binds looser than `needed`."""
    match index:
        case Int(value):
            return _wrap(str(value), SIGN if value < 0 else ATOM, needed)
        case Var(name) | Param(name) | Let(name, _):
            return name
        case Neg(operand):
            return _wrap("-" + index_text(operand, SIGN), SIGN, needed)
        case Arith(op, left, right):
            binding = _BINDING[op]
            text = f"{index_text(left, binding)} {op} {index_text(right, binding + 1)}"
            return _wrap(text, binding, needed)
        case Extremum(op, arguments):
            return f"{op}({', '.join(index_text(a) for a in arguments)})"
        case Opaque(array, arguments):
            return f"{array}[{', '.join(index_text(a) for a in arguments)}]"


def condition_text(condition: Condition, needed: int = TERNARY) -> str:
    """Print a condition; parenthesized where it binds looser than `needed`."""
    match condition:
        case Truth(value):
            return str(value)
        case Relation(op, left, right):
            text = f"{index_text(left, SUM)} {op} {index_text(right, SUM)}"
            return _wrap(text, COMPARE, needed)
        case Data(value):
            return value_text(value, needed)
        case Every(parts):
            return _wrap(" and ".join(condition_text(p, NOT) for p in parts), AND, needed)
        case Some(parts):
            return _wrap(" or ".join(condition_text(p, AND) for p in parts), OR, needed)
        case Not(part):
            return _wrap("not " + condition_text(part, COMPARE), NOT, needed)


def subscript_text(subscript: Subscript) -> str:
    """Print one subscript."""
    return ":" if isinstance(subscript, Whole) else index_text(subscript)


def access_text(access: Access, *, full: bool = False) -> str:
    """Print an access; unless `full`, a trailing `:` only where the author wrote it."""
    subscripts = list(access.subscripts)
    while not full and subscripts and subscripts[-1] == WHOLE and not _is_written(subscripts[-1]):
        subscripts.pop()
    if not subscripts:
        return access.array
    return f"{access.array}[{', '.join(subscript_text(s) for s in subscripts)}]"


def _is_written(subscript: Subscript) -> bool:
    return isinstance(subscript, Whole) and subscript.written


def _constant_text(value: float | int | bool) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return repr(value)


def range_text(bounds: Range, word: str = "range") -> str:
    """Print `range(…)` with its start, and with its step where that is not 1."""
    parts = [index_text(bounds.start), index_text(bounds.stop)]
    if bounds.step != 1:
        parts.append(str(bounds.step))
    return f"{word}({', '.join(parts)})"


def generator_text(generator: Generator) -> str:
    """Print `for e in range(0, E) if …`."""
    text = f"for {generator.variable} in {range_text(generator.range)}"
    if generator.condition != Truth(True):
        text += f" if {condition_text(generator.condition, OR)}"
    return text


def value_text(value: Value, needed: int = TERNARY) -> str:
    """Print a value; parenthesized where it binds looser than `needed`."""
    match value:
        case Const(number):
            text = _constant_text(number)
            return _wrap(text, SIGN if text.startswith("-") else ATOM, needed)
        case IndexValue(index):
            return index_text(index, needed)
        case Real(name):
            return name
        case Read(access):
            return access_text(access)
        case Unary(op, operand):
            return _wrap(op + value_text(operand, SIGN), SIGN, needed)
        case Binary("**", left, right):
            text = f"{value_text(left, ATOM)} ** {value_text(right, SIGN)}"
            return _wrap(text, POWER, needed)
        case Binary(op, left, right):
            binding = _BINDING[op]
            text = f"{value_text(left, binding)} {op} {value_text(right, binding + 1)}"
            return _wrap(text, binding, needed)
        case Compare(op, left, right):
            text = f"{value_text(left, SUM)} {op} {value_text(right, SUM)}"
            return _wrap(text, COMPARE, needed)
        case Holds(condition):
            return condition_text(condition, needed)
        case Select(condition, chosen, otherwise):
            text = (
                f"{value_text(chosen, OR)} if {condition_text(condition, OR)} "
                f"else {value_text(otherwise)}"
            )
            return _wrap(text, TERNARY, needed)
        case Call(function, arguments):
            return f"{function}({', '.join(value_text(a) for a in arguments)})"
        case Reduce(function, generators, body):
            bound = " ".join(generator_text(g) for g in generators)
            return f"{function}({value_text(body)} {bound})"
        case Create():
            return create_text(value)


def create_text(create: Create) -> str:
    """Print a creation, `zeros((M, D))` or `full(M, -inf)`."""
    extents = [index_text(extent) for extent in create.shape]
    arguments = [extents[0] if len(extents) == 1 else f"({', '.join(extents)})"]
    if create.fill is not None:
        arguments.append(value_text(create.fill))
    if create.element is not None:
        arguments.append(f"dtype={create.element}")
    return f"{create.function}({', '.join(arguments)})"


def assign_text(statement: Assign, inputs: Container[str] = ()) -> str:
    """Print a statement without its comment.

    Args:
        statement: The statement.
        inputs: The arrays that come from outside; written as a whole they are `T[:] = …`, since
            `T = …` would only give the name a new meaning. So would `T = 0.0` of any array.
    """
    targets = []
    values = statement.values * (len(statement.targets) if len(statement.values) == 1 else 1)
    for target, value in zip(statement.targets, values, strict=True):
        bare = bool(target.subscripts) and not target.indices
        text = access_text(target)
        store = bare and (target.array in inputs or not rank_of(value)) and text == target.array
        targets.append(f"{text}[:]" if store else text)
    if statement.augmented:
        value = statement.values[0]
        assert isinstance(value, Binary)
        return f"{targets[0]} {value.op}= {value_text(value.right)}"
    if len(statement.values) == 1:
        return f"{' = '.join(targets)} = {value_text(statement.values[0])}"
    return f"{', '.join(targets)} = {', '.join(value_text(value) for value in statement.values)}"


def contract_text(contract: Contract) -> str:
    """Print a contract as the `assert` it was written as."""
    condition = condition_text(contract.condition, OR if contract.generators else TERNARY)
    if not contract.generators:
        return f"assert {condition}"
    bound = " ".join(generator_text(generator) for generator in contract.generators)
    return f"assert all({condition} {bound})"


def if_text(guard: If) -> str:
    """Print the head of a guard, without the colon."""
    return f"if {condition_text(guard.condition)}"


def loop_text(loop: Loop) -> str:
    """Print the head of a loop, without the colon."""
    word = "parallel" if loop.execution == "parallel" else "range"
    return f"for {loop.variable} in {range_text(loop.range, word)}"


def private_text(loop: Loop) -> str:
    """Print the first line of the body of a loop that makes names private."""
    names = ", ".join(loop.private)
    return f"private: {names}" if len(loop.private) == 1 else f"private: ({names})"


def section_text(section: Section) -> str:
    """Print the head of an atomic or reducing block, without the colon."""
    match section:
        case Atomic(turn=None):
            return "with atomic()"
        case Atomic(turn=turn):
            return f"with atomic(turn={turn})"
        case BlockReduce(operator):
            return f'with reduce("{operator}")'


def listing(program: Program) -> str:
    """Print a whole program; the text parses back to an equal program."""
    lines: list[str] = []
    inputs = program.input_names
    *owners, name = program.name.split(".") if program.is_function else [program.name]
    for depth, owner in enumerate(owners):
        _line(f"class {owner}:", "", depth, lines)
    depth = len(owners)
    _leading(program.leading, depth, lines)
    if program.is_function:
        _line(f"def {name}({_arguments(program)}):", program.comment, depth, lines)
        depth += 1
    if program.docstring is not None:
        lines.append(INDENT * depth + _docstring(program.docstring))
    for contract in program.contracts:
        _leading(contract.leading, depth, lines)
        _line(contract_text(contract), contract.comment, depth, lines)
    _Printer(inputs, lines).body(program.body, depth)
    _leading(program.closing, depth, lines)
    if program.outputs:
        _line(f"return {', '.join(program.outputs)}", program.return_comment, depth, lines)
    elif program.is_function and not program.body and not program.contracts:
        _line("pass", "", depth, lines)
    return "\n".join(lines) + "\n"


def _arguments(program: Program) -> str:
    annotations = {array.name: array.annotation for array in program.arrays}
    annotations |= {parameter.name: parameter.annotation for parameter in program.parameters}
    defaults = {parameter.name: parameter.default for parameter in program.parameters}
    given = [defaults.get(name) is not None for name in program.arguments]
    arguments = []
    for position, name in enumerate(program.arguments):
        annotation, default = annotations.get(name), defaults.get(name)
        text = name if annotation is None else f"{name}: {annotation}"
        if default is not None:
            text += f" = {_constant_text(default)}" if annotation else f"={_constant_text(default)}"
        if given[position] and not any(given[:position]) and not all(given[position:]):
            text = f"*, {text}"  # Python wants no argument without a default after one with
        arguments.append(text)
    return ", ".join(arguments)


def _docstring(text: str) -> str:
    escaped = "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
        for c in text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    )
    if escaped.endswith('"'):
        escaped = escaped[:-1] + '\\"'
    return f'"""{escaped}"""'


def _with_comment(text: str, comment: str) -> str:
    return f"{text}  # {comment}" if comment else text


def _line(text: str, comment: str, depth: int, lines: list[str]) -> None:
    lines.append(INDENT * depth + _with_comment(text, comment))


def _leading(comments: Iterable[str], depth: int, lines: list[str]) -> None:
    lines.extend(INDENT * depth + f"# {comment}".rstrip() for comment in comments)


@dataclass(frozen=True, slots=True)
class _Printer:
    """Prints bodies into `lines`."""

    inputs: Container[str]
    lines: list[str]

    def body(self, body: tuple[Node, ...], depth: int) -> None:
        for node in body:
            _leading(node.leading, depth, self.lines)
            match node:
                case Declaration(array, creation):
                    text = f"{array} = {create_text(creation)}"
                    _line(text, node.comment, depth, self.lines)
                case Assign():
                    _line(assign_text(node, self.inputs), node.comment, depth, self.lines)
                case Loop():
                    _line(loop_text(node) + ":", node.comment, depth, self.lines)
                    if node.private:
                        _line(private_text(node), "", depth + 1, self.lines)
                    self.block(node.body, depth + 1)
                case Atomic() | BlockReduce():
                    _line(section_text(node) + ":", node.comment, depth, self.lines)
                    self.block(node.body, depth + 1)
                case Barrier():
                    _line("barrier()", node.comment, depth, self.lines)
                case If():
                    self.guard(node, "if", depth)

    def guard(self, node: If, keyword: str, depth: int) -> None:
        head = f"{keyword} {condition_text(node.condition)}:"
        _line(head, node.comment, depth, self.lines)
        self.block(node.body, depth + 1)
        if not node.orelse and not node.else_comment:
            return
        match node.orelse:
            case (If() as first,) if not node.else_comment:
                _leading(first.leading, depth, self.lines)
                self.guard(first, "elif", depth)
                return
            case _:
                pass
        _line("else:", node.else_comment, depth, self.lines)
        self.block(node.orelse, depth + 1)

    def block(self, body: tuple[Node, ...], depth: int) -> None:
        if body:
            self.body(body, depth)
        else:
            _line("pass", "", depth, self.lines)
