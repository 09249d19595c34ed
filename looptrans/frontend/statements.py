"""From syntax to the body of a Program: loops, guards, statements, declarations, contracts."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from looptrans.frontend.comments import Comments, label_of
from looptrans.frontend.expressions import Expressions, without_lets
from looptrans.frontend.mistakes import (
    BadContract,
    BadReturn,
    DuplicateLabel,
    LoopNotOverRange,
    LoopVariableAssigned,
    TooDeep,
    UnsetName,
    UnsupportedExpression,
    UnsupportedStatement,
    WrongRank,
)
from looptrans.frontend.names import Names, called, creation_of, dotted, flattened, span_of
from looptrans.ir.condition import Condition, Data, is_data_dependent
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.index import Index
from looptrans.ir.program import Array, Assign, Contract, Declaration, Element, If, Loop, Node
from looptrans.ir.value import (
    WHOLE,
    Access,
    Binary,
    BinaryOperator,
    Call,
    Compare,
    Const,
    Create,
    Generator,
    IndexValue,
    Read,
    Value,
)

_AUGMENTED: dict[type[ast.operator], BinaryOperator] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_REMEDIES: dict[type[ast.stmt], str] = {
    ast.While: "use for … in range(…), with a guard for what should not run",
    ast.Break: "guard the rest of the loop with an if instead",
    ast.Continue: "guard the rest of the loop with an if instead",
    ast.With: "take the statements out of the with",
    ast.Import: "listings need no imports",
    ast.ImportFrom: "listings need no imports",
    ast.Delete: "leave it out",
    ast.Global: "make it an argument",
    ast.Nonlocal: "make it an argument",
    ast.ClassDef: "name a method as FILE::Class.method",
}


@dataclass(slots=True)
class Statements:
    """Reads the statements of one listing, going on after a mistake to find them all.

    Attributes:
        names: The roles of the names.
        comments: The comments by line.
        mistakes: What was found wrong so far.
        contracts: The contracts read.
        outputs: The names returned.
    """

    names: Names
    comments: Comments
    mistakes: list[Mistake] = field(default_factory=list)
    contracts: list[Contract] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    return_comment: str = ""
    closing: tuple[str, ...] = ()
    expressions: Expressions = field(init=False)
    _labels: dict[str, ast.stmt] = field(default_factory=dict)
    _explicit: set[str] = field(default_factory=set)
    _own: list[int] = field(default_factory=list)
    _depth: int = 0
    _followed: set[tuple[int | None, int | None]] = field(default_factory=set)
    _returned: bool = False

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.names)

    def read(self, body: list[ast.stmt], first: int, last: int) -> tuple[Node, ...]:
        """Read a whole body that stands on lines `first` to `last`."""
        self._own = sorted(line for line in self.comments.own if first <= line <= last)
        self._followed = _followed_anywhere(body)
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                    label = label_of(self._comment(node))
                    if label is not None:
                        self._explicit.add(label)
        nodes = self.body(body)
        self.closing += self._leading(last + 1)
        return nodes

    def body(self, body: list[ast.stmt]) -> tuple[Node, ...]:
        """Read the statements of one block, in order."""
        found: list[Node] = []
        for number, statement in enumerate(body):
            try:
                node = self._statement(statement, last=number == len(body) - 1)
            except Mistake as mistake:
                self.mistakes.append(mistake)
                self._assume_set(statement)
            except RecursionError:
                self.mistakes.append(
                    TooDeep(
                        "the statement is nested too deeply",
                        span_of(statement),
                        remedy="split it with a temporary",
                    )
                )
                self._assume_set(statement)
            else:
                if node is not None:
                    found.append(node)
        return tuple(found)

    def _assume_set(self, statement: ast.stmt) -> None:
        """After a mistake, take its targets as set, so that it is reported once."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.expressions.scope.set_so_far.add(node.id)

    def _statement(self, statement: ast.stmt, *, last: bool) -> Node | None:
        if self._returned:
            raise BadReturn(
                "there are statements after the return",
                span_of(statement),
                remedy="put the return last",
            )
        match statement:
            case ast.For():
                return self._loop(statement)
            case ast.If():
                return self._guard(statement)
            case ast.Assign(value=ast.Lambda()) | ast.FunctionDef() | ast.Pass():
                return None
            case ast.Assign(targets=targets, value=value):
                return self._assign(statement, targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._assign(statement, [target], value)
            case ast.AnnAssign():
                return None
            case ast.AugAssign():
                return self._augmented(statement)
            case ast.Expr(value=ast.Constant()):
                return None
            case ast.Assert():
                self._contract(statement)
                return None
            case ast.Return():
                self._return(statement, last=last)
                return None
            case ast.Expr(value=value):
                raise UnsupportedStatement(
                    f"the expression {ast.unparse(value)[:60]!r} stands alone",
                    span_of(statement),
                    why="only an assignment has an effect in a listing; calls are never executed",
                    remedy="assign its value to a name, or leave it out",
                )
            case _:
                word = type(statement).__name__.lower()
                raise UnsupportedStatement(
                    f"{word!r} is outside the listing language",
                    span_of(statement),
                    why="the order of execution must be known exactly; see looptrans explain E006",
                    remedy=_REMEDIES.get(type(statement), "use loops, guards and assignments"),
                )

    # Comments and labels

    def _comment(self, statement: ast.stmt) -> str:
        return self.comments.between(statement.lineno, statement.end_lineno or statement.lineno)

    def _header_comment(self, statement: ast.For | ast.If, end: ast.expr) -> str:
        last = end.end_lineno or statement.lineno
        if statement.body[0].lineno <= last:
            return ""
        return self.comments.between(statement.lineno, last)

    def _leading(self, line: int) -> tuple[str, ...]:
        """Take the comment lines above `line` that nothing has taken yet."""
        taken = [own for own in self._own if own < line]
        self._own = self._own[len(taken) :]
        return tuple(self.comments.own[own] for own in taken)

    def _skip_inner(self, statement: ast.stmt) -> None:
        """Comment lines inside a statement belong to its trailing comment."""
        inner = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        self._own = [own for own in self._own if own not in inner]

    def _label(self, statement: ast.stmt, comment: str) -> tuple[str, bool]:
        label = label_of(comment)
        if label is not None:
            if label in self._labels:
                before = self._labels[label].lineno
                raise DuplicateLabel(
                    f"the label {label} is used twice",
                    span_of(statement),
                    why=f"line {before} carries it already; reports name statements by label",
                    remedy="give every statement a label of its own",
                )
            self._labels[label] = statement
            return label, True
        return self._fresh("S", statement), False

    def _fresh(self, letter: str, statement: ast.stmt) -> str:
        number = 1
        while (label := f"{letter}{number}") in self._labels or label in self._explicit:
            number += 1
        self._labels[label] = statement
        return label

    # Loops and guards

    def _loop(self, statement: ast.For) -> Node:
        scope = self.expressions.scope
        leading = self._leading(statement.lineno)
        if not isinstance(statement.target, ast.Name):
            raise LoopNotOverRange(
                f"the loop binds {ast.unparse(statement.target)!r}",
                span_of(statement.target),
                why="a loop has one variable",
                remedy="for i in range(…)",
            )
        if statement.orelse:
            raise UnsupportedStatement(
                "a loop has an else",
                span_of(statement),
                remedy="put the statements after the loop",
            )
        variable = statement.target.id
        if variable in scope.loops:
            raise LoopVariableAssigned(
                f"{variable!r} is already the variable of a loop around this one",
                span_of(statement.target),
                remedy="choose another name",
            )
        if variable in self.names.parameters or variable in self.names.arrays:
            what = "an argument or a size" if variable in self.names.parameters else "assigned"
            raise LoopVariableAssigned(
                f"the loop variable {variable!r} is also {what}",
                span_of(statement.target),
                remedy="choose another name for one of the two",
            )
        bounds = self.expressions.range(statement.iter, variable)
        comment = self._header_comment(statement, statement.iter)
        changed = _targets(statement.body)
        self._forget(changed)
        scope.loops.append(variable)
        self._depth += 1
        pending = scope.pending
        scope.pending = pending | changed
        body = self.body(statement.body)
        scope.pending = pending
        self._depth -= 1
        scope.loops.pop()
        self._forget(changed)
        return Loop(
            variable, bounds, body, comment=comment, leading=leading, span=span_of(statement)
        )

    def _forget(self, changed: set[str]) -> None:
        for name in changed:
            self.expressions.scope.lets.pop(name, None)

    def _guard(self, statement: ast.If) -> Node:
        scope = self.expressions.scope
        chosen = self._as_extremum(statement)
        if chosen is not None:
            return chosen
        leading = self._leading(statement.lineno)
        condition = self.expressions.condition(statement.test)
        comment = self._header_comment(statement, statement.test)
        label = self._fresh("G", statement) if is_data_dependent(condition) else None
        changed = _targets(statement.body) | _targets(statement.orelse)
        lets = dict(scope.lets)
        self._depth += 1
        with self.expressions.guarded():
            body = self.body(statement.body)
            scope.lets = dict(lets)
            else_comment = self._else_comment(statement)
            orelse = self.body(statement.orelse)
        self._depth -= 1
        scope.lets = lets
        self._forget(changed)
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
        first = statement.orelse[0].lineno
        return " # ".join(
            self.comments.trailing[line]
            for line in range(last + 1, first)
            if line in self.comments.trailing
        )

    def _as_extremum(self, statement: ast.If) -> Node | None:
        """Read `if x > s: s = x` as `s = max(s, x)`, and its mirror images."""
        match statement:
            case ast.If(
                test=ast.Compare(left=left, ops=[operator], comparators=[right]),
                body=[ast.Assign(targets=[target], value=value) as assignment],
                orelse=[],
            ) if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                pass
            case _:
                return None
        texts = ast.unparse(left), ast.unparse(right)
        target_text, value_text = ast.unparse(target), ast.unparse(value)
        greater = isinstance(operator, ast.Gt | ast.GtE)
        if texts == (value_text, target_text):
            function = "max" if greater else "min"
        elif texts == (target_text, value_text):
            function = "min" if greater else "max"
        else:
            return None
        condition = self.expressions.condition(statement.test)
        if not (isinstance(condition, Data) and isinstance(condition.value, Compare)):
            return None
        compared = condition.value
        old, new = compared.left, compared.right
        if texts[0] == value_text:
            old, new = new, old
        leading = self._leading(assignment.lineno)
        comment = self.comments.between(statement.lineno, assignment.end_lineno or 0)
        label, labelled = self._label(assignment, comment)
        access = self._target(target, 0)
        self._now_set(access.array, None)
        return Assign(
            label,
            (access,),
            (Call(function, (old, new)),),
            labelled,
            comment=comment,
            leading=leading,
            span=span_of(assignment),
        )

    # Assignments

    def _assign(
        self, statement: ast.Assign | ast.AnnAssign, targets: list[ast.expr], value: ast.expr
    ) -> Node:
        leading = self._leading(statement.lineno)
        self._skip_inner(statement)
        comment = "" if self._shares_line(statement) else self._comment(statement)
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple | ast.List):
            return self._several(statement, targets[0], value, comment, leading)
        read = self.expressions.value(value)
        declaration = self._declaration(targets, read, comment, leading, statement)
        if declaration is not None:
            return declaration
        label, labelled = self._label(statement, comment)
        rank = self.expressions.rank(read)
        index = self._let_value(value)
        accesses = [self._target(target, rank) for target in targets]
        for access in accesses:
            self._now_set(access.array, index if access.subscripts == () else None)
        return Assign(
            label,
            tuple(accesses),
            (read,),
            labelled,
            comment=comment,
            leading=leading,
            span=span_of(statement),
        )

    def _shares_line(self, statement: ast.stmt) -> bool:
        """Tell whether another statement follows on the same line; it then has the comment."""
        return (statement.end_lineno, statement.end_col_offset) in self._followed

    def _several(
        self,
        statement: ast.stmt,
        target: ast.Tuple | ast.List,
        value: ast.expr,
        comment: str,
        leading: tuple[str, ...],
    ) -> Node:
        if not isinstance(value, ast.Tuple | ast.List) or len(value.elts) != len(target.elts):
            raise UnsupportedExpression(
                f"{ast.unparse(value)[:60]!r} is not one value for each of the targets",
                span_of(value),
                remedy="write a, b = x, y",
            )
        reads = [self.expressions.value(element) for element in value.elts]
        indices = [self._let_value(element) for element in value.elts]
        label, labelled = self._label(statement, comment)
        accesses = [
            self._target(element, self.expressions.rank(read))
            for element, read in zip(target.elts, reads, strict=True)
        ]
        for access, index in zip(accesses, indices, strict=True):
            self._now_set(access.array, index if access.subscripts == () else None)
        return Assign(
            label,
            tuple(accesses),
            tuple(reads),
            labelled,
            comment=comment,
            leading=leading,
            span=span_of(statement),
        )

    def _augmented(self, statement: ast.AugAssign) -> Node:
        leading = self._leading(statement.lineno)
        self._skip_inner(statement)
        comment = "" if self._shares_line(statement) else self._comment(statement)
        operator = _AUGMENTED.get(type(statement.op))
        if operator is None:
            raise UnsupportedStatement(
                f"the operator of {ast.unparse(statement)[:60]!r} is outside the language",
                span_of(statement),
                remedy="use + - * / // % or **",
            )
        loaded = ast.parse(ast.unparse(statement.target), mode="eval").body
        for node in ast.walk(loaded):
            ast.copy_location(node, statement.target)
        result = ast.BinOp(loaded, statement.op, statement.value)
        index = self._let_value(ast.copy_location(result, statement))
        old = self.expressions.value(loaded)
        if isinstance(old, Const | IndexValue):
            raise LoopVariableAssigned(
                f"{ast.unparse(statement.target)!r} is a loop variable or a parameter, and is "
                "assigned",
                span_of(statement.target),
                remedy="use a name of its own",
            )
        value = self.expressions.value(statement.value)
        self.expressions.join(old, value, statement.value)
        label, labelled = self._label(statement, comment)
        access = self._target(statement.target, self.expressions.rank(value))
        self._now_set(access.array, index if access.subscripts == () else None)
        return Assign(
            label,
            (access,),
            (Binary(operator, Read(access), value),),
            labelled,
            augmented=True,
            comment=comment,
            leading=leading,
            span=span_of(statement),
        )

    def _let_value(self, value: ast.expr) -> Index | None:
        index = self.expressions.try_index(value)
        return None if index is None else without_lets(index)

    def _declaration(
        self,
        targets: list[ast.expr],
        value: Value,
        comment: str,
        leading: tuple[str, ...],
        statement: ast.stmt,
    ) -> Declaration | None:
        """Read a creation before the nest; None where the statement is something else."""
        if not isinstance(value, Create) or len(targets) != 1:
            return None
        name = dotted(targets[0])
        fresh = name is not None and name not in self.expressions.scope.set_so_far
        if name is None or not fresh or self._depth or self.names.arrays[name].role != "local":
            return None
        self._shape(name, value)
        self.expressions.scope.set_so_far.add(name)
        return Declaration(name, value, leading, comment, span=span_of(statement))

    def _shape(self, name: str, create: Create) -> None:
        """Note the shape and the element type a creation gives its array."""
        array = self.names.arrays[name]
        if array.rank > len(create.shape):
            raise WrongRank(
                f"{name!r} is made with {len(create.shape)} dimensions and used with {array.rank}",
                None,
                remedy="make the shape fit the subscripts",
            )
        shape = create.shape
        if array.shape and any(known is not None for known in array.shape):
            shape = array.shape if array.shape == create.shape else shape
        element = array.element
        if create.element is not None:
            kinds: tuple[Element, ...] = ("int", "bool")
            element = next((kind for kind in kinds if kind in create.element), "float")
        self.names.arrays[name] = replace(
            array, rank=len(create.shape), shape=shape, element=element
        )

    def _target(self, node: ast.expr, rank: int) -> Access:
        if isinstance(node, ast.Starred | ast.Tuple | ast.List):
            raise UnsupportedStatement(
                f"{ast.unparse(node)!r} cannot be assigned", span_of(node), remedy="assign names"
            )
        name = dotted(flattened(node)[0])
        if name is None:
            raise UnsupportedStatement(
                f"{ast.unparse(node)[:60]!r} cannot be assigned",
                span_of(node),
                remedy="assign to a name or to an array element",
            )
        if name in self.names.loop_variables or name in self.names.constants:
            what = "a loop variable" if name in self.names.loop_variables else "a constant"
            raise LoopVariableAssigned(
                f"{name!r} is {what}, and is assigned",
                span_of(node),
                why="the iterations are the ones its range says",
                remedy="use a name of its own",
            )
        array = self.names.arrays.get(name)
        if array is None and name in self.names.parameters:
            raise LoopVariableAssigned(
                f"{name!r} is a parameter, and is assigned",
                span_of(node),
                why="a parameter is fixed during a run",
                remedy="copy it to a name of its own first",
            )
        if array is None:
            raise UnsetName(
                f"{name!r} is not set anywhere",
                span_of(node),
                remedy=f"make {name} an argument, or create it with zeros(…)",
            )
        if isinstance(node, ast.Name | ast.Attribute):
            return self._named_target(name, array, rank, node)
        if array.role == "local" and name not in self.expressions.scope.set_so_far:
            self.expressions.require_set(name, node)
        access = self.expressions.access(node)
        if rank and access.rank != rank:
            raise WrongRank(
                f"a row is stored into {ast.unparse(node)!r}, which is "
                + ("a number" if access.rank == 0 else "more than a row"),
                span_of(node),
                remedy="store it into a whole row",
            )
        return access

    def _named_target(self, name: str, array: Array, rank: int, node: ast.expr) -> Access:
        if array.role == "input" and array.rank:
            raise UnsupportedStatement(
                f"the argument {name!r} is given a new meaning",
                span_of(node),
                why="assigning the name does not change the caller's array",
                remedy=f"store into it, {name}[:] = …, or use a name of its own",
            )
        if array.rank != rank:
            if array.rank < rank and name not in self.expressions.scope.set_so_far:
                self.names.arrays[name] = replace(array, rank=rank, shape=(None,) * rank)
            else:
                raise WrongRank(
                    f"{name!r} is a {'row' if array.rank else 'number'} elsewhere, and "
                    f"{'an array' if rank > 1 else 'a row' if rank else 'a number'} here",
                    span_of(node),
                    remedy="use two names",
                )
        return Access(name, (WHOLE,) * rank)

    def _now_set(self, name: str, index: Index | None) -> None:
        scope = self.expressions.scope
        scope.set_so_far.add(name)
        if index is None:
            scope.lets.pop(name, None)
        else:
            scope.lets[name] = index

    # Contracts and the return

    def _contract(self, statement: ast.Assert) -> None:
        if self._depth:
            raise BadContract(
                "a contract stands inside a loop or guard",
                span_of(statement),
                remedy="state it at the top of the function, with all(… for … in range(…))",
            )
        leading = self._leading(statement.lineno)
        self._skip_inner(statement)
        comment = self._comment(statement)
        test = statement.test
        generators: tuple[Generator, ...] = ()
        if isinstance(test, ast.Call) and called(test.func) == "all" and len(test.args) == 1:
            argument = test.args[0]
            if not isinstance(argument, ast.GeneratorExp | ast.ListComp):
                raise BadContract(
                    "all(…) takes a comparison and for … in range(…)",
                    span_of(test),
                    remedy="assert all(cu[b] <= cu[b + 1] for b in range(B))",
                )
            with self.expressions.bound(argument.generators) as generators:
                condition: Condition = self.expressions.condition(argument.elt)
        else:
            condition = self.expressions.condition(test)
        conditions = [condition, *(generator.condition for generator in generators)]
        if any(is_data_dependent(each) for each in conditions):
            raise BadContract(
                f"{ast.unparse(test)[:60]!r} is no comparison of sizes and integer arrays",
                span_of(test),
                why="a contract is used in proofs, so it must be an exact statement",
                remedy="compare sizes, loop variables and elements of integer arrays",
            )
        self.contracts.append(
            Contract(condition, generators, leading, comment, span=span_of(statement))
        )

    def _return(self, statement: ast.Return, *, last: bool) -> None:
        if self._depth or not last:
            raise BadReturn(
                "the return is not at the end of the listing",
                span_of(statement),
                why="all iterations run",
                remedy="put one return at the end",
            )
        self.closing += self._leading(statement.lineno)
        self._skip_inner(statement)
        self.return_comment = self._comment(statement)
        self._returned = True
        value = statement.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        elements = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
        found: list[str] = []
        for element in elements:
            name = dotted(element)
            if name is None or name not in self.names.arrays:
                raise BadReturn(
                    f"{ast.unparse(element)[:60]!r} is no array or scalar of the listing",
                    span_of(element),
                    why="a listing returns its results by name",
                    remedy="assign it to a name first, and return that",
                )
            self.expressions.require_set(name, element)
            found.append(name)
        self.outputs = tuple(dict.fromkeys(found))


def _followed_anywhere(body: list[ast.stmt]) -> set[tuple[int | None, int | None]]:
    """Return the ends of the statements after which another one stands on the same line."""
    ends: set[tuple[int | None, int | None]] = set()
    for statement in body:
        for node in ast.walk(statement):
            for block in ("body", "orelse"):
                inner = getattr(node, block, None)
                if isinstance(inner, list):
                    ends |= _followed_in(inner)
    return ends | _followed_in(body)


def _followed_in(body: list[ast.stmt]) -> set[tuple[int | None, int | None]]:
    return {
        (first.end_lineno, first.end_col_offset)
        for first, second in zip(body, body[1:], strict=False)
        if first.end_lineno == second.lineno
    }


def _targets(body: list[ast.stmt]) -> set[str]:
    """Return every name a body assigns, as a whole or by element."""
    found: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(
                node.ctx, ast.Store
            ):
                name = dotted(flattened(node)[0])
                if name is not None:
                    found.add(name)
    return found
