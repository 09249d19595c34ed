"""From syntax to the body of a Program: loops, guards, and what stands in them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from looptrans.frontend.assignments import Assignments
from looptrans.frontend.comments import Comments
from looptrans.frontend.contracts import read_contracts
from looptrans.frontend.creations import one_by_one
from looptrans.frontend.labels import labels_in
from looptrans.frontend.mistakes import (
    BadPrivate,
    BadReturn,
    LoopNotOverRange,
    NameTaken,
    TooDeep,
    UnsupportedStatement,
)
from looptrans.frontend.names import Names
from looptrans.frontend.privates import is_private_line, is_private_with_value, private_names
from looptrans.frontend.remedies import alone_instead
from looptrans.frontend.scope import GUARD, Block
from looptrans.frontend.sections import require_barrier, section_head, section_word
from looptrans.frontend.syntax import (
    dotted,
    elements_of,
    head_of,
    loop_word,
    preorder,
    private_line,
    short,
    span_of,
    statements_below,
    stored_names,
    word_of,
)
from looptrans.frontend.updates import not_updates
from looptrans.frontend.values import Values
from looptrans.ir.condition import ALWAYS, Condition, is_data_dependent
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.index import Int
from looptrans.ir.program import Atomic, Barrier, BlockReduce, Contract, If, Loop, Node, Section
from looptrans.ir.source import Span
from looptrans.ir.value import Range

REMEDIES: dict[type[ast.stmt], str] = {
    ast.While: "use for … in range(…), with a guard for what should not run",
    ast.Break: "set done = False before the loop, guard its body with if not done, and set it here",
    ast.Continue: "let it end the first branch of an if, or guard the rest of the loop instead",
    ast.Import: "leave it out; exp, np.exp and the like are known without",
    ast.ImportFrom: "leave it out; exp, np.exp and the like are known without",
    ast.Delete: "leave it out",
    ast.Global: "make it an argument",
    ast.Nonlocal: "make it an argument",
    ast.ClassDef: "name a method as FILE::Class.method",
    ast.Raise: "state what must hold as a contract, assert …",
    ast.Try: "leave it out; a listing has no exceptions",
    ast.Match: "write if … elif … else",
    ast.AsyncFor: "write a plain for",
    ast.AsyncWith: "take the statements out of the with",
}


@dataclass(slots=True)
class Statements:
    """Reads the statements of one listing, going on after a mistake to find them all.

    Attributes:
        names: The roles of the names.
        comments: The comments of the listing.
        in_function: Whether a `return` may end it.
        mistakes: What was found wrong so far.
        contracts: The contracts read.
        outputs: The names returned.
        return_comment: The comment beside the return.
        closing: The comments below the last statement.
        privates: The names that loops make private, with the place where each first is.
    """

    names: Names
    comments: Comments
    in_function: bool
    mistakes: list[Mistake] = field(default_factory=list)
    contracts: list[Contract] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    return_comment: str = ""
    closing: tuple[str, ...] = ()
    privates: dict[str, Span] = field(default_factory=dict)
    _values: Values = field(init=False)
    _assignments: Assignments = field(init=False)
    _returned: bool = False

    def read(self, body: list[ast.stmt], last: int) -> tuple[Node, ...]:
        """Read a whole body; comments down to line `last` belong to it."""
        ends = {
            node.end_lineno or node.lineno: None
            for node in statements_below(body)
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        }
        self._values = Values(self.names)
        labels = labels_in(self.comments.peek(line) for line in ends)
        self._assignments = Assignments(self._values, self.comments, labels, _sharing(body))
        nodes = self._body([part for statement in body for part in one_by_one(statement)])
        self.closing += self.comments.above(last + 1)
        return nodes

    def require(self, steps: Iterable[ast.Assert]) -> None:
        """Read what the text requires of the sizes that are steps of its loops."""
        if not self.mistakes:  # else a step may be no integer, which has been said
            for each in steps:
                self.contracts += read_contracts(each, self._values, (), "")

    def _body(self, body: list[ast.stmt]) -> tuple[Node, ...]:
        found: list[Node] = []
        for number, statement in enumerate(body):
            try:
                node = self._statement(statement, last=number == len(body) - 1)
            except Mistake as mistake:
                self._note(mistake, statement)
            except RecursionError:
                deep = TooDeep(
                    "the statement is nested too deeply",
                    head_of(statement),
                    remedy="split it with a temporary",
                )
                self._note(deep, statement)
            else:
                if node is not None:
                    found.append(node)
        return tuple(found)

    def _note(self, mistake: Mistake, statement: ast.stmt) -> None:
        """Keep a mistake, and take what its statement sets as set, so that it is noted once."""
        self.mistakes.append(mistake)
        self._note_targets(statement)
        stored = stored_names([statement])
        self._values.scope.set_so_far |= stored.keys()
        self._values.scope.forget(stored)

    def _note_targets(self, statement: ast.stmt) -> None:
        """Look for a mistake in the subscripts of the target as well."""
        match statement:
            case ast.Assign(targets=[ast.Subscript() as target]):
                pass
            case ast.AugAssign(target=ast.Subscript() as target):
                pass
            case _:
                return
        try:
            self._values.access(target)
        except Mistake as mistake:
            self.mistakes.append(mistake)

    def _statement(self, statement: ast.stmt, *, last: bool) -> Node | None:
        if self._returned:
            raise BadReturn(
                "there are statements after the return",
                head_of(statement),
                why="they would never run",
                remedy="put the return last",
            )
        self._values.scope.line = statement.lineno
        match statement:
            case ast.For():
                return self._loop(statement)
            case ast.If():
                return self._assignments.extremum(statement) or self._guard(statement)
            case ast.Assign(value=ast.Lambda()) | ast.FunctionDef() | ast.Pass():
                return None
            case ast.AnnAssign() if is_private_with_value(statement, self.names):
                raise BadPrivate(
                    "private: gives a value",
                    span_of(statement),
                    why="a private copy starts without a value",
                    remedy="name it alone, and set it on a line of its own",
                )
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self._assignments.read(statement, value)
            case ast.AugAssign():
                return self._assignments.augmented(statement)
            case ast.With():
                return self._with(statement)
            case ast.Expr(value=ast.Call(func=ast.Name(id="barrier"))):
                return self._barrier(statement)
            case ast.AnnAssign() if is_private_line(statement, self.names):
                raise BadPrivate(
                    "private: is not the first line of the body of a loop",
                    span_of(statement),
                    why="it says what each iteration of the loop has for itself, from its start",
                    remedy="put it right under the head of the loop",
                )
            case ast.AnnAssign() | ast.Expr(value=ast.Constant()):
                return None
            case ast.Assert():
                leading = self.comments.above(statement.lineno)
                comment = self._assignments.comment(statement)
                self.contracts += read_contracts(statement, self._values, leading, comment)
                return None
            case ast.Return():
                self._return(statement, last=last)
                return None
            case ast.Expr(value=value):
                raise UnsupportedStatement(
                    f"the expression {short(value)} stands alone",
                    span_of(statement),
                    why="only an assignment has an effect in a listing; calls are never executed",
                    remedy=alone_instead(value),
                )
            case _:
                raise UnsupportedStatement(
                    f"{word_of(statement)!r} is outside the listing language",
                    head_of(statement),
                    why="the order of execution must be known exactly; see looptrans explain E006",
                    remedy=REMEDIES.get(type(statement), "use loops, guards and assignments"),
                )

    # Loops and guards

    def _header_comment(self, first: int, last: int, body: list[ast.stmt]) -> str:
        """Take the comments beside a header that ends somewhere between `last` and its body."""
        if body[0].lineno <= last:
            return self.comments.beside(first, last - 1, last - 1)
        return self.comments.beside(first, body[0].lineno - 1, last)

    def _loop(self, statement: ast.For) -> Node:
        leading = self.comments.above(statement.lineno)
        end = statement.iter.end_lineno or statement.lineno
        comment = self._header_comment(statement.lineno, end, statement.body)
        variable, bounds = "", Range(Int(0), Int(0))
        parallel = isinstance(statement.iter, ast.Call) and (
            loop_word(statement.iter.func) == "parallel"
        )
        try:
            variable = self._loop_variable(statement)
            bounds = self._bounds(statement.iter, variable)
        except Mistake as mistake:
            self.mistakes.append(mistake)
        private, inner = self._private(statement)
        variables = [n.id for n in preorder(statement.target) if isinstance(n, ast.Name)]
        stores, last = stored_names(inner), statement.end_lineno or end
        kind: Literal["parallel", "loop"] = "parallel" if parallel else "loop"
        block = Block(kind, variable, frozenset(stores), private)
        with self._values.scope.loop(block, variables, stores, last):
            body = self._body(inner)
        return Loop(
            variable,
            bounds,
            body,
            "parallel" if parallel else "sequential",
            private,
            comment,
            leading,
            span_of(statement),
        )

    def _bounds(self, node: ast.expr, variable: str) -> Range:
        """Read the `range(…)` or `parallel(…)` that a loop runs over."""
        if not isinstance(node, ast.Call) or loop_word(node.func) != "parallel":
            return self._values.range(node, variable)
        if self.names.is_bound("parallel"):
            raise NameTaken(
                "'parallel' is a name of the listing, which also has a parallel loop",
                span_of(node.func),
                why="one name cannot be both a word of the language and a number",
                remedy="rename the one of the listing, e.g. parallel_",
            )
        return self._values.bounds(node, "parallel")

    def _private(self, statement: ast.For) -> tuple[tuple[str, ...], list[ast.stmt]]:
        """Read the `private:` line of a loop; return the names, and the body without it."""
        first, *rest = statement.body
        names = private_line(first)
        if names is None or not is_private_line(first, self.names):
            return (), statement.body
        places, mistakes = private_names(names, self.names)
        self.mistakes += mistakes
        for name, span in places.items():
            self.privates.setdefault(name, span)
        return tuple(places), rest

    def _loop_variable(self, statement: ast.For) -> str:
        if statement.orelse:
            self.mistakes.append(
                UnsupportedStatement(
                    "a loop has an else",
                    head_of(statement),
                    why="without break it always runs",
                    remedy="put the statements after the loop",
                )
            )
        if not isinstance(statement.target, ast.Name):
            raise LoopNotOverRange(
                f"the loop binds {short(statement.target)}",
                span_of(statement.target),
                why="a loop has one variable",
                remedy="for i in range(…)",
            )
        self._values.require_free(statement.target.id, statement.target)
        return statement.target.id

    def _guard(self, statement: ast.If) -> Node:
        scope = self._values.scope
        leading = self.comments.above(statement.lineno)
        end = statement.test.end_lineno or statement.lineno
        comment = self._header_comment(statement.lineno, end, statement.body)
        condition: Condition = ALWAYS
        try:
            condition = self._values.condition(statement.test)
        except Mistake as mistake:
            self.mistakes.append(mistake)
        label = self._assignments.labels.fresh("G") if is_data_dependent(condition) else None
        lets = dict(scope.lets)
        with scope.block(GUARD, statement.end_lineno or end):
            body = self._body(statement.body)
            scope.lets, chosen = lets, scope.lets
            else_comment = self._else_comment(statement)
            orelse = self._body(statement.orelse)
        scope.lets = {n: let for n, let in scope.lets.items() if chosen.get(n) == let}
        return If(
            condition,
            body,
            orelse,
            label,
            comment,
            else_comment,
            leading,
            span=span_of(statement),
        )

    def _else_comment(self, statement: ast.If) -> str:
        if not statement.orelse:
            return ""
        last = statement.body[-1].end_lineno or statement.body[-1].lineno
        return self.comments.beside(last + 1, statement.orelse[0].lineno - 1, 0)

    # Atomic and reduce blocks, barriers

    def _with(self, statement: ast.With) -> Node:
        scope, word = self._values.scope, section_word(statement)
        leading = self.comments.above(statement.lineno)
        head = statement.items[-1]
        end = (head.optional_vars or head.context_expr).end_lineno or statement.lineno
        comment = self._header_comment(statement.lineno, end, statement.body)
        section: Section = Atomic(())
        try:
            section = section_head(statement, self.names, scope)
        except Mistake as mistake:
            self.mistakes.append(mistake)
        known = len(self.mistakes)
        with scope.section(Block("atomic" if word == "atomic" else "reduce")):
            body = self._body(statement.body)
        section = replace(
            section, body=body, comment=comment, leading=leading, span=span_of(statement)
        )
        if isinstance(section, BlockReduce):
            # What a cell holds is settled only when all iterations are done.
            scope.forget(stored_names(statement.body))
            if len(self.mistakes) == known:
                self.mistakes += not_updates(section, scope.blocks)
        return section

    def _barrier(self, statement: ast.Expr) -> Node:
        leading = self.comments.above(statement.lineno)
        comment = self._assignments.comment(statement)
        scope = self._values.scope
        require_barrier(statement, self.names, scope)
        # What the iterations share holds what the last of them set.
        loop = scope.blocks[-1]
        scope.forget(loop.stores.difference(loop.private))
        return Barrier(comment, leading, span_of(statement))

    # The return

    def _return(self, statement: ast.Return, *, last: bool) -> None:
        if self._values.scope.depth or not last or not self.in_function:
            raise BadReturn(
                "the return is not at the end of a function",
                span_of(statement),
                why="all iterations run",
                remedy="put one return at the end",
            )
        self._returned = True
        value = statement.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        self.closing += self.comments.above(statement.lineno)
        self.return_comment = self._assignments.comment(statement)
        found: list[str] = []
        for element in elements_of(value):
            name = dotted(element)
            if name is None or name not in self.names.arrays:
                self.mistakes.append(
                    BadReturn(
                        f"{short(element)} is no array or scalar of the listing",
                        span_of(element),
                        why="a listing returns its results by name",
                        remedy="assign it to a name first, and return that",
                    )
                )
                continue
            self._values.require_set(name, element)
            found.append(name)
        self.outputs = tuple(dict.fromkeys(found))


def _sharing(body: list[ast.stmt]) -> set[tuple[int | None, int | None]]:
    """Return the ends of the statements after which another one stands on the same line."""
    blocks = [body]
    for node in statements_below(body):
        for name in ("body", "orelse"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                blocks.append(inner)
    return {
        (first.end_lineno, first.end_col_offset)
        for block in blocks
        for first, second in pairwise(block)
        if first.end_lineno == second.lineno
    }
