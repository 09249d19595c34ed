"""Atomic blocks, reduce blocks and barriers: how they are written, and where they may stand."""

from __future__ import annotations

import ast

from looptrans.frontend.mistakes import BadReduction, Misplaced, UnsupportedStatement
from looptrans.frontend.names import Names
from looptrans.frontend.scope import Block, Scope
from looptrans.frontend.syntax import SECTIONS, dotted, head_of, short, span_of
from looptrans.ir.monoids import MONOIDS, Monoid
from looptrans.ir.program import Atomic, BlockReduce, Section

MAKE_PARALLEL = "make a loop around it parallel, for j in parallel(…)"


def section_word(statement: ast.With) -> str:
    """Return `atomic` or `reduce`, whichever a `with` is about.

    Raises:
        UnsupportedStatement: It is about something else.
    """
    for item in statement.items:
        head = item.context_expr
        word = dotted(head.func if isinstance(head, ast.Call) else head)
        if word in SECTIONS:
            return word
    raise UnsupportedStatement(
        f"'with' of {short(statement.items[0].context_expr)} is outside the listing language",
        head_of(statement),
        why='only with atomic(): and with reduce("+"): have a meaning, in a parallel loop',
        remedy="take the statements out of the with",
    )


def section_head(statement: ast.With, names: Names, scope: Scope) -> Section:
    """Read the head of an atomic or reduce block; the body is left empty.

    Raises:
        Mistake: It is written in another way, or stands where it has no meaning.
    """
    word = section_word(statement)
    item, *more = statement.items
    usual = "atomic()" if word == "atomic" else 'reduce("+")'
    if more or item.optional_vars is not None:
        raise UnsupportedStatement(
            "a with has several parts" if more else "the block is given a name with as",
            head_of(statement),
            why="each block is one with" if more else "the block itself is no value",
            remedy=f"write with {usual}:, and another with inside it"
            if more
            else f"write with {usual}: alone",
        )
    call = item.context_expr
    if not isinstance(call, ast.Call):
        raise UnsupportedStatement(
            f"{word} is not called", head_of(statement), remedy=f"write with {usual}:"
        )
    names.called(call.func)
    section: Section = (
        Atomic((), _turn(call)) if word == "atomic" else BlockReduce(_operator(call), ())
    )
    _require_parallel(f"{'an' if word == 'atomic' else 'a'} {word} block", statement, scope)
    if isinstance(section, Atomic):
        _require_not_nested(statement, scope)
        if section.turn is not None:
            _require_turn(section.turn, call, scope)
    return section


def _turn(call: ast.Call) -> str | None:
    match call:
        case ast.Call(args=[], keywords=[]):
            return None
        case ast.Call(args=[], keywords=[ast.keyword(arg="turn", value=ast.Name(id=name))]):
            return name
        case _:
            raise UnsupportedStatement(
                f"{short(call)} is not understood",
                span_of(call),
                why="all it may be told is the parallel loop whose iterations take turns",
                remedy="with atomic():, or with atomic(turn=j):",
            )


def _operator(call: ast.Call) -> Monoid:
    shown = [f'"{operator}"' for operator in MONOIDS]
    choice = f"use {', '.join(shown[:-1])} or {shown[-1]}"
    match call:
        case ast.Call(args=[ast.Constant(value=str(operator)) as node], keywords=[]):
            if operator in MONOIDS:
                return operator
            raise BadReduction(
                f"{operator!r} is no operator of a reduce block",
                span_of(node),
                why="the operands are combined in no set order, which these operators allow",
                remedy=choice,
            )
        case _:
            raise UnsupportedStatement(
                f"{short(call)} is not understood",
                span_of(call),
                why="a reduce block is told its operator, as a string",
                remedy=choice,
            )


# Where they may stand


def _require_parallel(what: str, statement: ast.stmt, scope: Scope) -> None:
    if any(block.kind == "parallel" for block in scope.blocks):
        return
    inside = bool(scope.loops)
    raise Misplaced(
        f"{what} stands outside any parallel loop",
        head_of(statement),
        why="the iterations of a sequential loop run one after another as it is"
        if inside
        else "there are no iterations at once that it could order",
        remedy=f"leave it out, or {MAKE_PARALLEL}" if inside else "leave it out",
    )


def _require_not_nested(statement: ast.With, scope: Scope) -> None:
    if any(block.kind == "atomic" for block in scope.blocks):
        raise Misplaced(
            "an atomic block stands inside another one",
            head_of(statement),
            why="the inner one would wait for the outer one to end, and so for ever",
            remedy="leave the inner with out: its statements are atomic as it is",
        )


def _require_turn(variable: str, call: ast.Call, scope: Scope) -> None:
    node = call.keywords[0].value
    loop = _loop(variable, scope)
    if loop is None:
        raise Misplaced(
            f"the turn is of {variable!r}, and there is no loop {variable} around the block",
            span_of(node),
            why="the iterations of a parallel loop take turns",
            remedy="name the variable of the parallel loop in whose body the block stands",
        )
    if loop.kind != "parallel":
        raise Misplaced(
            f"the turn is of {variable!r}, and the loop {variable} is not parallel",
            span_of(node),
            why="its iterations run in order as it is",
            remedy=f"name a parallel loop, or write for {variable} in parallel(…)",
        )
    if scope.blocks[-1] is not loop:
        raise Misplaced(
            f"the block takes turns over {variable}, and does not stand directly in the body of "
            f"the loop {variable}",
            span_of(node),
            why=f"it stands {_place(scope.blocks[-1])} inside, and each iteration of {variable} "
            "has one turn",
            remedy=f"put the with directly into the body of {variable}, with "
            f"{_inside(scope.blocks[-1])} inside it",
        )


def require_barrier(statement: ast.Expr, names: Names, scope: Scope) -> None:
    """Require that `barrier()` is written so, and stands directly in a parallel loop.

    Raises:
        Mistake: It is or does not.
    """
    call = statement.value
    assert isinstance(call, ast.Call)
    names.called(call.func)
    if call.args or call.keywords:
        raise UnsupportedStatement(
            f"{short(call)} is not understood",
            span_of(call),
            why="all iterations of the parallel loop around it wait for each other",
            remedy="write barrier()",
        )
    _require_parallel("a barrier", statement, scope)
    parent = scope.blocks[-1]
    if parent.kind == "parallel":
        return
    variable = next(b.variable for b in reversed(scope.blocks) if b.kind == "parallel")
    raise Misplaced(
        f"a barrier stands {_place(parent)}, not directly in the body of the parallel loop "
        f"{variable}",
        span_of(statement),
        why="the iterations that wait for the block to be free would never come to it"
        if parent.kind == "atomic"
        else "the block holds updates, which are combined only when it has ended"
        if parent.kind == "reduce"
        else f"all iterations of {variable} wait at it, so each must come to it exactly once",
        remedy="end the block before the barrier"
        if parent.kind in SECTIONS
        else f"put it into the body of {variable}, between two guards of the same condition"
        if parent.kind == "guard"
        else f"put it before or after the loop {parent.variable}, or make {parent.variable} a loop "
        f"around {variable}",
    )


def _loop(variable: str, scope: Scope) -> Block | None:
    for block in reversed(scope.blocks):
        if block.is_loop and block.variable == variable:
            return block
    return None


def _place(block: Block) -> str:
    match block.kind:
        case "guard":
            return "in a guard"
        case "atomic":
            return "in an atomic block"
        case "reduce":
            return "in a reduce block"
        case _:
            return f"in the loop {block.variable}"


def _inside(block: Block) -> str:
    match block.kind:
        case "guard":
            return "the guard"
        case "atomic" | "reduce":
            return "the other block"
        case _:
            return f"the loop {block.variable}"
