"""From syntax to assignments and declarations."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from looptrans.frontend.comments import Comments
from looptrans.frontend.creations import created
from looptrans.frontend.labels import Labels
from looptrans.frontend.mistakes import (
    LoopVariableAssigned,
    SharedRow,
    UnsetName,
    UnsupportedExpression,
    UnsupportedStatement,
    WrongRank,
)
from looptrans.frontend.names import Names
from looptrans.frontend.syntax import dotted, flattened, preorder, short, span_of
from looptrans.frontend.values import BINARY, Values
from looptrans.ir.condition import Data
from looptrans.ir.index import Index
from looptrans.ir.program import Array, Assign, Declaration, Node
from looptrans.ir.value import (
    WHOLE,
    Access,
    Binary,
    Call,
    Compare,
    Create,
    Read,
    Value,
    rank_of,
    walk_value,
)


@dataclass(slots=True)
class Assignments:
    """Reads assignments.

    Attributes:
        values: Reads what they assign.
        comments: The comments of the text.
        labels: Hands out labels.
        sharing: The ends of the statements that have another one after them on the same line,
            which has the comment.
    """

    values: Values
    comments: Comments
    labels: Labels
    sharing: set[tuple[int | None, int | None]]
    _created: set[str] = field(default_factory=set)

    @property
    def names(self) -> Names:
        """The roles of the names."""
        return self.values.names

    def comment(self, statement: ast.stmt) -> str:
        """Take the comment beside a statement."""
        end = statement.end_lineno or statement.lineno
        if (end, statement.end_col_offset) in self.sharing:
            end -= 1
        return self.comments.beside(statement.lineno, end, end)

    def read(self, statement: ast.Assign | ast.AnnAssign, value: ast.expr) -> Node:
        """Read `a = e`, `a = b = e` or `a, b = x, y`."""
        leading = self.comments.above(statement.lineno)
        comment = self.comment(statement)
        targets: list[ast.expr] = (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        expressions = [value]
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple | ast.List):
            expressions = self._one_each(targets[0], value)
            targets = targets[0].elts
        read = [self.values.value(expression) for expression in expressions]
        lets = [self.values.let_value(expression) for expression in expressions]
        made = read[0]
        if (
            len(targets) == 1
            and isinstance(made, Create)
            and self._creates(targets[0], made, value)
        ):
            name = dotted(targets[0]) or ""
            return Declaration(name, made, leading, comment, span=span_of(statement))
        label, labelled = self.labels.of(statement, comment)
        self._independent(targets, statement)
        accesses = []
        for number, target in enumerate(targets):
            at = number if len(read) == len(targets) else 0
            accesses.append(self._store(target, read[at], lets[at]))
        shared = [a for a in accesses if a.subscripts and not a.indices]
        if len(read) < len(targets) and len(shared) > 1:
            raise SharedRow(
                f"{shared[0].array!r} and {shared[1].array!r} would be one array",
                span_of(statement),
                why="in NumPy both names are the same memory",
                remedy="set each on a line of its own",
            )
        return Assign(
            label,
            tuple(accesses),
            tuple(read),
            labelled,
            comment=comment,
            leading=leading,
            span=span_of(statement),
        )

    @staticmethod
    def _one_each(target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.expr]:
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            return value.elts
        remedy = "write a, b = x, y"
        if isinstance(value, ast.Attribute) and value.attr == "shape":
            extents = (f"{ast.unparse(value)}[{place}]" for place in range(len(target.elts)))
            remedy = f"write {', '.join(map(ast.unparse, target.elts))} = {', '.join(extents)}"
        raise UnsupportedExpression(
            f"{short(value)} is not one value for each of the {len(target.elts)} targets",
            span_of(value),
            why="which value goes where must be seen from the text",
            remedy=remedy,
        )

    @staticmethod
    def _independent(targets: list[ast.expr], statement: ast.stmt) -> None:
        """Require that no target's subscript reads a name the same statement sets before it."""
        stored: set[str] = set()
        for target in targets:
            base, subscripts = flattened(target)
            for node in preorder(*subscripts):
                if isinstance(node, ast.Name) and node.id in stored:
                    raise UnsupportedStatement(
                        f"{node.id!r} is set and used as a subscript in one statement",
                        span_of(statement),
                        why="Python sets the targets one after the other, so it would be the new "
                        "value",
                        remedy="write one line for each target",
                    )
            stored.add(dotted(base) or "")

    def augmented(self, statement: ast.AugAssign) -> Node:
        """Read `a += e`."""
        leading = self.comments.above(statement.lineno)
        comment = self.comment(statement)
        target = statement.target
        operator = BINARY.get(type(statement.op))
        if operator is None or operator == "@":
            raise UnsupportedStatement(
                f"the operator of {short(statement)} is outside the language",
                span_of(statement),
                why="only arithmetic may be combined with =",
                remedy="use += -= *= /= //= %= or **=",
            )
        self._assignable(target)
        result = ast.copy_location(ast.BinOp(target, statement.op, statement.value), statement)
        index = self.values.let_value(result)
        old = self.values.value(target)
        value = self.values.number(statement.value)
        self.values.join(old, value, statement.value)
        label, labelled = self.labels.of(statement, comment)
        access = self._store(target, value if rank_of(value) else old, index)
        return Assign(
            label,
            (access,),
            (Binary(operator, old, value),),
            labelled,
            augmented=True,
            comment=comment,
            leading=leading,
            span=span_of(statement),
        )

    def extremum(self, statement: ast.If) -> Node | None:
        """Read `if x > s: s = x` as `s = max(s, x)`, and its mirror images; None for others.

        Of equal numbers the first has the derivative: `if x >= s: s = x` is `s = max(x, s)`.
        """
        match statement:
            case ast.If(
                test=ast.Compare(left=left, ops=[operator], comparators=[right]),
                body=[ast.Assign(targets=[target], value=value) as assignment],
                orelse=[],
            ) if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                pass
            case _:
                return None
        sides = ast.unparse(left), ast.unparse(right)
        chosen = ast.unparse(value), ast.unparse(target)
        if sides not in (chosen, chosen[::-1]):
            return None
        condition = self.values.condition(statement.test)
        if not (isinstance(condition, Data) and isinstance(condition.value, Compare)):
            return None
        old, new = condition.value.left, condition.value.right
        if sides == chosen:
            old, new = new, old
        larger = isinstance(operator, ast.Gt | ast.GtE) == (sides == chosen)
        leading = self.comments.above(assignment.lineno)
        comment = self.comment(assignment)
        label, labelled = self.labels.of(assignment, comment)
        takes_equal = isinstance(operator, ast.GtE | ast.LtE)
        pair = (new, old) if takes_equal else (old, new)
        result = Call("max" if larger else "min", pair)
        access = self._store(target, result, None)
        return Assign(
            label,
            (access,),
            (result,),
            labelled,
            comment=comment,
            leading=leading,
            span=span_of(statement),
        )

    # Targets

    def _creates(self, target: ast.expr, create: Create, value: ast.expr) -> bool:
        """Note what a creation makes; tell whether it declares a new array before the nest.

        What is filled with a number that the nest computes is not there before it.
        """
        name = dotted(target)
        if name is None:
            return False
        self._assignable(target)
        array = self.names.arrays[name]
        if array.role != "local":
            return False
        scope = self.values.scope
        again = name in self._created or scope.is_set(name)
        self.names.arrays[name] = created(array, create, value, again=again)
        self._created.add(name)
        computed = self.names.assigned | self.names.assigned_elements
        filled = any(isinstance(v, Read) and v.access.array in computed for v in walk_value(create))
        if again or scope.depth or filled:
            return False
        scope.now_set(name, None)
        return True

    def _store(self, target: ast.expr, value: Value, index: Index | None) -> Access:
        """Read a target, and note that it is set from here on."""
        self._assignable(target)
        name = dotted(target)
        rank = rank_of(value)
        if name is None:
            access = self.values.access(target)
            if rank and access.rank != rank:
                raise WrongRank(
                    f"a row is stored into {short(target)}, which is "
                    + ("a number" if access.rank == 0 else "more than a row"),
                    span_of(target),
                    why="a row can be stored only into a row",
                    remedy="store it into a whole row, or element by element in a loop",
                )
            return access
        access = self._whole(name, self.names.arrays[name], value, target)
        self.values.scope.now_set(name, None if access.subscripts else index)
        return access

    def _whole(self, name: str, array: Array, value: Value, node: ast.expr) -> Access:
        rank = rank_of(value)
        if array.role == "input" and array.rank:
            raise UnsupportedStatement(
                f"the argument {name!r} is given a new meaning",
                span_of(node),
                why="assigning the name does not change the caller's array",
                remedy=f"store into it, {name}[:] = …, or use a name of its own",
            )
        if array.rank != rank:
            if array.rank or name in self.values.scope.set_so_far:
                kinds = {0: "a number", 1: "a row"}
                raise WrongRank(
                    f"{name!r} is {kinds.get(array.rank, 'an array')} elsewhere, and "
                    f"{kinds.get(rank, 'an array')} here",
                    span_of(node),
                    why="a name means one thing throughout",
                    remedy="use two names, or store into all of it, a[:] = …",
                )
            self.names.arrays[name] = replace(array, rank=rank, shape=(None,) * rank)
        return Access(name, (WHOLE,) * rank)

    def _assignable(self, node: ast.expr) -> None:
        """Require that a target is an array, an element of one, or a scalar."""
        name = dotted(flattened(node)[0])
        if name is None:
            raise UnsupportedStatement(
                f"{short(node)} cannot be assigned",
                span_of(node),
                why="values are stored in names and in array elements",
                remedy="assign to a name or to an array element",
            )
        if name in self.names.arrays and name not in self.names.loop_variables:
            return
        if name in self.names.loop_variables or name in self.names.parameters:
            loop = name in self.names.loop_variables
            raise LoopVariableAssigned(
                f"{name!r} is {'a loop variable' if loop else 'a parameter'}, and is assigned",
                span_of(node),
                why="the iterations are the ones its range says"
                if loop
                else "a parameter is fixed during a run",
                remedy="use a name of its own",
            )
        raise UnsetName(
            f"{name!r} is not set anywhere",
            span_of(node),
            why="it is neither an argument nor assigned as a whole",
            remedy=f"make {name} an argument, or create it with zeros(…)",
        )
