"""The rank of every array and row: the least one that its uses allow.

`A[i, j]` needs rank 2; an operand of `@` is a row; `q = A[i]` ties the two names together.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Mapping

from looptrans.frontend.creations import extents_of
from looptrans.frontend.syntax import called, dotted, elements_of, flattened, preorder, shape_read
from looptrans.ir.functions import CREATIONS, FUNCTIONS

HIGHEST = 16


def creation_rank(node: ast.expr) -> int | None:
    """Return the number of dimensions `zeros(…)` and its like make; None for anything else."""
    if isinstance(node, ast.Call) and called(node.func) in CREATIONS and node.args:
        return len(extents_of(node))
    return None


def find_ranks(
    body: list[ast.stmt], declared: Mapping[str, int], given: Mapping[str, int]
) -> dict[str, int]:
    """Return the rank of every name that is an array somewhere.

    Args:
        body: The statements.
        declared: The ranks that annotations state.
        given: The least ranks known from elsewhere.
    """
    solver = _Solver({**given, **declared}, frozenset(declared))
    for node in preorder(*body):
        solver.note(node)
    return solver.solve()


class _Solver:
    """Raises ranks until every tie holds; a rank only grows, and only to `HIGHEST`."""

    def __init__(self, ranks: dict[str, int], fixed: frozenset[str]) -> None:
        self.ranks = ranks
        self.fixed = fixed
        self.rows: list[ast.expr] = []
        self.ties: list[tuple[ast.expr, ast.expr]] = []
        self.made: set[str] = set()

    def note(self, node: ast.AST) -> None:
        """Note what one syntax node says about ranks."""
        match node:
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                self.rows += [left, right]
            case ast.Call(args=[row]) if called(node.func) in ("sum", "max", "min"):
                if not isinstance(row, ast.GeneratorExp | ast.ListComp):
                    self.rows.append(row)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._tie(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._tie(target, value)
            case ast.AugAssign(target=target, value=value):
                self._tie(target, value)
            case ast.Subscript():
                base, subscripts = flattened(node)
                name = dotted(base)
                if name is not None and shape_read(node) is None:
                    self._raise(name, len(subscripts))
            case _:
                pass
        if isinstance(node, ast.expr):
            extent = shape_read(node)
            if extent is not None and extent[1] is not None:
                self._raise(extent[0], extent[1] + 1 if extent[1] >= 0 else -extent[1])

    def _tie(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            read = shape_read(value)
            if read is not None and read[1] is None:
                self._raise(read[0], len(target.elts))
            for one, other in zip(target.elts, elements_of(value), strict=False):
                self._tie(one, other)
            return
        rank = creation_rank(value)
        if rank is None:
            self.ties.append((target, value))
        elif (name := dotted(target)) is not None:
            self._raise(name, rank)
            self.made.add(name)

    def _raise(self, name: str, rank: int) -> bool:
        rank = min(rank, HIGHEST)
        if name in self.fixed or self.ranks.get(name, 0) >= rank:
            self.ranks.setdefault(name, rank)
            return False
        self.ranks[name] = rank
        return True

    def solve(self) -> dict[str, int]:
        """Let the ties raise ranks until nothing changes."""
        for row in self.rows:
            self._require(row, 1)
        users: dict[str, list[int]] = {}
        for number, tie in enumerate(self.ties):
            for node in preorder(*tie):
                if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)):
                    users.setdefault(name, []).append(number)
        queue = deque(range(len(self.ties)))
        queued = set(queue)
        while queue:
            number = queue.popleft()
            queued.discard(number)
            for name in self._apply(*self.ties[number]):
                for user in users.get(name, ()):
                    if user not in queued:
                        queued.add(user)
                        queue.append(user)
        return self.ranks

    def _apply(self, target: ast.expr, value: ast.expr) -> list[str]:
        """Make both sides of one assignment fit; return the names whose rank grew."""
        grown = self._require(target, self._rank(value))
        view = _view(target)
        # A number may be stored into every element of a row, but not the other way round.
        if view is not None and isinstance(target, ast.Name):
            grown += self._require(value, self.ranks.get(view[0], 0) - view[1])
        return grown

    def _require(self, node: ast.expr, rank: int) -> list[str]:
        view = _view(node)
        if view is None or rank <= 0:
            return []
        name, fixed = view
        if name in self.made:  # how many dimensions it has is said where it is made
            return []
        return [name] if self._raise(name, fixed + rank) else []

    def _rank(self, node: ast.expr) -> int:
        view = _view(node)
        if view is not None:
            name, fixed = view
            return max(self.ranks.get(name, 0) - fixed, 0)
        match node:
            case ast.BinOp(op=ast.MatMult()):
                return 0
            case ast.BinOp(left=left, right=right):
                return max(self._rank(left), self._rank(right))
            case ast.UnaryOp(operand=operand):
                return self._rank(operand)
            case ast.IfExp(body=chosen, orelse=otherwise):
                return max(self._rank(chosen), self._rank(otherwise))
            case ast.Call(func=function, args=arguments):
                kind = called(function)
                if kind not in FUNCTIONS or (FUNCTIONS[kind].reduces and len(arguments) == 1):
                    return 0
                return max((self._rank(a) for a in arguments), default=0)
            case _:
                return 0


def _view(node: ast.expr) -> tuple[str, int] | None:
    """Return the array and the number of fixed subscripts of `A`, `A[i]`, `A[i].copy()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=base, attr="copy"), args=[]):
            node = base
        case _:
            pass
    base, subscripts = flattened(node)
    name = dotted(base)
    if name is None or shape_read(node) is not None:
        return None
    return name, sum(not isinstance(s, ast.Slice) for s in subscripts)
