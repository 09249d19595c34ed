"""Random listings as text, for properties that compare the package with the trace oracle.

Every subscript is at least 0 where all sizes are at least 1, every scalar is set before it is read
on every path, and every nest runs under `trace`. The first choice of each drawing is the plainest,
so that hypothesis shrinks towards `for i in range(N): A[i] = A[i]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

T = TypeVar("T")

FEATURES = frozenset(
    (
        "contract",
        "data_guard",
        "guard",
        "imperfect",
        "let",
        "negative_step",
        "non_rectangular",
        "opaque",
        "scalar",
        "select",
        "several_arrays",
        "several_nests",
        "strided",
        "ternary",
        "two_targets",
    )
)
_ACCESS_LIMIT = 1500


@dataclass(frozen=True)
class Nest:
    """A listing, what it needs to run, and what occurs in it (a subset of `FEATURES`)."""

    source: str
    sizes: dict[str, int]
    arrays: dict[str, np.ndarray]
    features: frozenset[str]


def nests(*, data_guards: bool = False, opaque: bool = False) -> st.SearchStrategy[Nest]:
    """Return a strategy for random listings.

    Args:
        data_guards: Let conditions depend on the arrays and scalars that the listing computes.
        opaque: Let integer arrays stand in bounds, guards and subscripts, sometimes with a true
            contract about them.
    """
    return _nests(data_guards, opaque)


def made(random: Random, *, data_guards: bool = False, opaque: bool = False) -> Nest:
    """Return a random listing that follows from `random` alone; see `nests`.

    Where nothing is shrunk: hypothesis takes some fifty times as long to draw one, and what it
    draws for a seed depends on the modules that happen to be loaded.
    """
    return _Builder(random, data_guards, opaque).nest()


@dataclass(frozen=True)
class _Var:
    """A loop variable or integer let: 0 <= value <= top[0] + top[1], if top is known."""

    name: str
    top: tuple[str, int] | None


@dataclass(frozen=True)
class _Scope:
    """What may be named at a place in the text."""

    loops: tuple[_Var, ...] = ()
    lets: tuple[_Var, ...] = ()
    scalars: tuple[str, ...] = ()
    guards: int = 0


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _plus(text: str, constant: int) -> str:
    if constant == 0:
        return text
    return f"{text} {'+' if constant > 0 else '-'} {abs(constant)}"


_ARRAY_NAMES = (("A", "B", "C"), ("x", "y", "z"), ("U", "V", "W"))
_LOOP_NAMES = (("i", "j", "k"), ("r", "c", "d"), ("b", "h", "t"), ("row", "col", "e"))
_SIZE_NAMES = (("N", "M", "L"), ("T", "H", "R"))
_SCALAR_NAMES = ("s", "acc", "t0", "tmp")
_LET_NAMES = ("k0", "at", "pos")


class _Builder:
    def __init__(self, random: Random, data_guards: bool, opaque: bool) -> None:
        self.below = random.randrange
        self.data_guards = data_guards
        self.may_opaque = opaque
        self.features: set[str] = set()
        self.opaque: dict[str, tuple[str, ...]] = {}
        self.depths: list[int] = []
        self.names = self.pick(_LOOP_NAMES)
        self.sizes = self.pick(_SIZE_NAMES)[: self.pick((2, 1, 3))]
        count = self.pick((2, 1, 3))
        self.ranks = {a: self.pick((1, 2)) for a in self.pick(_ARRAY_NAMES)[:count]}
        self.chained = {a for a, rank in self.ranks.items() if rank == 2 and self.chance(3)}

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, out_of: int) -> bool:
        return self.below(out_of) == out_of - 1

    def permutation(self, length: int) -> list[int]:
        left = list(range(length))
        return [left.pop(self.below(len(left))) for _ in range(length)]

    # Subscripts, values, conditions.

    def subscript(self, scope: _Scope) -> str:
        if scope.lets and self.chance(2):
            return _plus(scope.lets[-1].name, self.pick((0, 1)))
        if not scope.loops:
            return self.pick(("0", "1", f"{self.sizes[0]} - 1"))
        v = self.pick(scope.loops)
        if self.may_opaque and self.chance(4) and (term := self.opaque_index(scope, v)):
            return _plus(term, self.pick((0, 1)))
        shift = self.pick((0, 1, 2))
        match self.pick("vvvvvvwdcr2p"):
            case "w":
                w = self.pick(scope.loops)
                return _plus(f"{v.name} + {w.name}" if w != v else f"2 * {v.name}", shift)
            case "d":
                w = self.pick(scope.loops)
                if w != v and w.top is not None:
                    return _plus(f"{v.name} - {w.name} + {w.top[0]}", w.top[1] + shift)
            case "c":
                return str(shift)
            case "r" if v.top is not None:
                return f"{_plus(v.top[0], v.top[1])} - {v.name}"
            case "2":
                return _plus(f"2 * {v.name}", shift)
            case "p":
                return f"{v.name} + p"
        return _plus(v.name, shift)

    def opaque_index(self, scope: _Scope, v: _Var) -> str | None:
        """Return an integer array at loop variables that range over its extents."""
        kind = self.pick(("idx", "page", "cu"))
        w = self.pick(scope.loops)
        if kind == "page":
            return self.integers("page", v, w)
        if kind == "cu" and w != v:
            term = self.integers("cu", v)
            return term and f"{term} + {w.name}"
        return self.integers("idx", v)

    def integers(self, name: str, *at: _Var) -> str | None:
        """Return `name[at]` if the variables stay inside the array, which has one shape."""
        if not all(v.top is not None and v.top[1] == -1 for v in at):
            return None
        shape = tuple(v.top[0] for v in at if v.top is not None)
        if self.opaque.setdefault(name, shape) != shape:
            return None
        self.features.add("opaque")
        return f"{name}[{', '.join(v.name for v in at)}]"

    def element(self, scope: _Scope) -> str:
        array = self.pick(tuple(self.ranks))
        items = [self.subscript(scope) for _ in range(self.ranks[array])]
        return f"{array}[{('][' if array in self.chained else ', ').join(items)}]"

    def term(self, scope: _Scope) -> str:
        kind = self.pick("aaaaassv1")
        if kind == "s" and scope.scalars:
            return scope.scalars[-1 - self.below(len(scope.scalars))]
        if kind == "v" and scope.loops:
            return self.pick(("alpha", scope.loops[-1].name))
        return "1.5" if kind == "1" else self.element(scope)

    def value(self, scope: _Scope) -> str:
        a = self.term(scope)
        match self.pick("++*am-??0" if self.data_guards else "++*a*m-?0"):
            case "+":
                return f"{a} + {self.term(scope)}"
            case "-":
                return f"{a} * 0.5 - {self.term(scope)}"
            case "*":
                return f"0.5 * {a}"
            case "m":
                return f"max({a}, {self.term(scope)})"
            case "0":
                return f"abs({a}) + alpha * {self.term(scope)}"
            case "?" if scope.loops:
                self.features.add("ternary")
                return f"{a} if {self.condition(scope)} else {self.term(scope)}"
        return a

    def condition(self, scope: _Scope) -> str:
        if self.data_guards and self.chance(2):
            self.features.add("data_guard")
            return self.data_condition(scope)
        self.features.add("guard")
        return self.affine_condition(scope)

    def affine_condition(self, scope: _Scope) -> str:
        a = self.comparison(scope)
        match self.pick("11111&|!"):
            case "&":
                return f"{a} and {self.comparison(scope)}"
            case "|":
                return f"{a} or {self.comparison(scope)}"
            case "!":
                return f"not ({a})"
        return a

    def comparison(self, scope: _Scope) -> str:
        v, w = self.pick(scope.loops), self.pick(scope.loops)
        if self.may_opaque and self.chance(2) and (text := self.opaque_comparison(v, w)):
            return text
        size = self.pick(self.sizes)
        simple = (
            f"{v.name} > 0",
            f"{v.name} == {self.pick((0, 1))}",
            f"{v.name} % 2 == {self.pick((0, 1))}",
            f"{v.name} < {size} - 1",
            f"0 < {v.name} < {size} - 1",
            f"{v.name} != {size} // 2",
        )
        if v == w:
            return self.pick(simple)
        pairs = (
            f"{v.name} {self.pick(('<', '<=', '==', '!=', '>'))} {w.name}",
            f"{v.name} + {w.name} < {size}",
            f"{v.name} - {w.name} >= 1",
            f"({v.name} + {w.name}) % {self.pick((2, 3))} == 0",
            f"{v.name} <= 2 * {w.name}",
        )
        return self.pick(pairs)

    def opaque_comparison(self, v: _Var, w: _Var) -> str | None:
        if self.chance(2) and (first := self.integers("n", v)):
            return f"{w.name} < {first}" if w != v else f"{first} > 1"
        first, second = self.integers("doc", v), self.integers("doc", w)
        if first is None or second is None:
            return None
        return f"{first} == {second}" if v != w else f"{first} == 1"

    def data_condition(self, scope: _Scope) -> str:
        a = f"{self.element(scope)} > 0.0"
        match self.pick("000bs&|!"):
            case "b":
                return f"{self.element(scope)} < {self.element(scope)}"
            case "s" if scope.scalars:
                return f"{scope.scalars[-1]} < 0.5"
            case "&" if scope.loops:
                return f"{self.comparison(scope)} and {a}"
            case "|":
                return f"{a} or {self.element(scope)} < 0.25"
            case "!":
                return f"not ({a})"
        return a

    # Statements.

    def count(self, scope: _Scope, line: str) -> list[str]:
        self.depths.append(len(scope.loops))
        return [line]

    def statement(self, scope: _Scope) -> list[str]:
        if scope.scalars and self.chance(3):
            self.features.add("scalar")
            s, x = self.pick(scope.scalars), self.term(scope)
            if self.data_guards and self.chance(3):
                self.features.add("select")
                x, sign = self.element(scope), self.pick("<>")
                head = f"if {x} {sign} {s}:" if self.chance(2) else f"if {s} {sign} {x}:"
                return [head, *_indent(self.count(scope, f"{s} = {x}"))]
            forms = (f"{s} += {x}", f"{s} = {s} + {x}", f"{s} = max({s}, {x})", f"{s} *= {x}")
            return self.count(scope, self.pick(forms))
        target, value = self.element(scope), self.value(scope)
        if self.chance(12):
            self.features.add("two_targets")
            other = target if self.chance(4) else self.element(scope)
            return self.count(scope, f"{target}, {other} = {value}, {self.term(scope)}")
        return self.count(scope, f"{target} {self.pick(('=', '=', '=', '=', '+=', '*='))} {value}")

    def scalar(self, scope: _Scope) -> tuple[list[str], _Scope]:
        """Set a scalar that may be used from here to the end of the block."""
        name = self.pick(_SCALAR_NAMES)
        self.features.add("scalar")
        value = self.value(scope) if self.chance(2) else self.element(scope)
        known = (*(s for s in scope.scalars if s != name), name)
        return self.count(scope, f"{name} = {value}"), replace(scope, scalars=known)

    def let(self, scope: _Scope) -> tuple[list[str], _Scope]:
        """Set an integer that may stand in subscripts from here to the end of the block."""
        v, name = self.pick(scope.loops), self.pick(_LET_NAMES)
        self.features.add("let")
        value = None
        if self.may_opaque and self.chance(2):
            value = self.integers("idx", v)
        if value is None:
            w = self.pick(scope.loops)
            value = f"{v.name} + {w.name if w != v else self.pick((1, 2))}"
        known = (*(x for x in scope.lets if x.name != name), _Var(name, None))
        return self.count(scope, f"{name} = {value}"), replace(scope, lets=known)

    def guard(self, scope: _Scope) -> list[str]:
        inner = replace(scope, guards=scope.guards + 1)
        condition, body = self.condition(scope), self.straight(inner)
        lines = [f"if {condition}:", *_indent(body)]
        kind = self.pick(("", "", "else", "elif", "both"))
        sides = condition.split(" < ")
        if body in ([" = ".join(sides)], [" = ".join(reversed(sides))]):
            self.features.add("select")
        if kind in ("elif", "both"):
            lines += [f"elif {self.condition(scope)}:", *_indent(self.straight(inner))]
        if kind in ("else", "both"):
            lines += ["else:", *_indent(self.straight(inner))]
        return lines

    def straight(self, scope: _Scope) -> list[str]:
        """Return a few statements, possibly guarded, the last one no mere definition."""
        lines: list[str] = []
        for _ in range(self.pick((1, 2, 3) if scope.guards == 0 else (1, 1, 2))):
            kind = self.pick("===sl???" if self.data_guards else "====sl?")
            if kind == "?" and scope.loops and scope.guards < 2:
                lines += self.guard(scope)
                continue
            if kind in "sl" and scope.loops:
                new, scope = self.scalar(scope) if kind == "s" else self.let(scope)
                lines += new
                kind = ""
            else:
                lines += self.statement(scope)
        return lines if kind else lines + self.statement(scope)

    # Loops.

    def loop(self, scope: _Scope, depth: int) -> list[str]:
        name = self.names[len(scope.loops)]
        size = self.pick(self.sizes)
        bounds = self.inner_bounds(scope, size) if scope.loops and self.chance(2) else None
        text, top = bounds or self.bounds(size)
        if text.endswith(("-1)", "-2)")):
            self.features.add("negative_step")
        if re.search(r", -?[23]\)$", text) and text.count(",") >= 2:
            self.features.add("strided")
        inner = replace(scope, loops=(*scope.loops, _Var(name, top)))
        return [f"for {name} in {text}:", *_indent(self.body(inner, depth))]

    def bounds(self, size: str) -> tuple[str, tuple[str, int]]:
        last = (size, -1)
        other = self.pick(self.sizes)
        return self.pick(
            (
                (f"range({size})", last),
                (f"range(0, {size})", last),
                (f"range({size})", last),
                (f"range(1, {size})", last),
                (f"range({size} - 1, -1, -1)", last),
                (f"range({size} - 1)", last),
                (f"range({size} + 1)", (size, 0)),
                (f"range(0, {size}, 2)", last),
                (f"range({size} - 1, -1, -2)", last),
                (f"range(1, {size}, 3)", last),
                (f"range({size} - 1, 0, -1)", last),
                (f"range(({size} + 1) // 2)", last),
                (f"range(min({size}, {other}))", last),
                (f"range({size} // 2, {size})", last),
            )
        )

    def inner_bounds(self, scope: _Scope, size: str) -> tuple[str, tuple[str, int] | None] | None:
        u = self.pick(scope.loops)
        if self.may_opaque and self.chance(2):
            if self.chance(2) and (low := self.integers("cu", u)):
                self.features.add("non_rectangular")
                return f"range({low}, cu[{u.name} + 1])", None
            if end := self.integers("n", u):
                self.features.add("non_rectangular")
                return f"range({end})", None
        self.features.add("non_rectangular")
        x, last = u.name, (size, -1)
        return self.pick(
            (
                (f"range({x} + 1)", u.top),
                (f"range({x}, {size})", last),
                (f"range({x} + 1, {size})", last),
                (f"range({x})", u.top),
                (f"range(max(0, {x} - 1), min({size}, {x} + 2))", last),
                (f"range({x}, -1, -1)", u.top),
                (f"range({size} - {x})", last),
                (f"range({size} - 1, {x} - 1, -1)", last),
                (f"range({x}, {size}, 2)", last),
                (f"range({x} // 2, {size})", last),
                (f"range({x} % 2, {size}, 2)", last),
                (f"range(min({x} + 1, {size}))", last),
            )
        )

    def body(self, scope: _Scope, depth: int) -> list[str]:
        if len(scope.loops) >= depth:
            return self.straight(scope)
        shape = self.pick(("L", "L", "L", "sL", "Ls", "sLs", "LL", "?L"))
        if shape not in ("L", "?L"):
            self.features.add("imperfect")
        lines: list[str] = []
        for part in shape:
            if part == "L":
                new = self.loop(scope, depth)
                lines += _indent(new) if shape == "?L" else new
            elif part == "?":
                lines.append(f"if {self.condition(scope)}:")
            elif self.chance(2):
                new, scope = self.scalar(scope)
                lines += new
            else:
                lines += self.statement(scope)
        return lines

    def top(self) -> list[str]:
        scope = _Scope()
        lines: list[str] = []
        if self.chance(3):
            lines, scope = [f"{_SCALAR_NAMES[0]} = 0.0"], _Scope(scalars=_SCALAR_NAMES[:1])
            self.depths.append(0)
            self.features.add("scalar")
        count = self.pick((1, 1, 1, 2, 3))
        if count > 1:
            self.features.add("several_nests")
        for position in range(count):
            depth = self.pick((2, 3, 1, 3) if count == 1 else (1, 2, 2))
            if position and self.chance(4):
                lines += self.statement(scope)
            lines += self.loop(scope, depth)
        return lines

    # The whole.

    def limit(self) -> int:
        """Return the largest size that keeps the trace small."""
        costs = {m: sum(4 * (m + 0.2) ** d for d in self.depths) for m in (5, 4, 3)}
        return next((m for m, cost in costs.items() if cost <= _ACCESS_LIMIT), 2)

    def nest(self) -> Nest:
        lines = self.top()
        text = "\n".join(lines)
        kinds = {name: shape for name, shape in self.opaque.items() if f"{name}[" in text}
        if not kinds:
            self.features.discard("opaque")
        limit = self.limit()
        chosen = {s: 2 + self.below(limit - 1) for s in self.sizes}
        arrays, annotations, contracts = self.contents(kinds, chosen)
        words = set(
            re.findall(r"[A-Za-z_]\w*", " ".join([text, *annotations.values(), *contracts]))
        )
        sizes = {name: size for name, size in chosen.items() if name in words}
        if "p" in words:
            sizes["p"] = self.pick((0, 1, 2))
        used = [name for name in self.ranks if name in words]
        if len(used) > 1:
            self.features.add("several_arrays")
        lines = contracts + lines
        form = self.pick(("all", "all", "free", "module"))
        if form != "module" or kinds:
            given = [*used, *(f"{name}: {text}" for name, text in annotations.items())]
            scalars = [*sizes, *(["alpha"] if "alpha" in words else [])]
            arguments = ", ".join(given + (scalars if form == "all" else scalars[len(sizes) :]))
            lines = [f"def nest({arguments}):", *_indent(lines)]
        return Nest("\n".join(lines) + "\n", sizes, arrays, frozenset(self.features))

    def contents(
        self, kinds: dict[str, tuple[str, ...]], sizes: dict[str, int]
    ) -> tuple[dict[str, np.ndarray], dict[str, str], list[str]]:
        """Fill the integer arrays, annotate them, and state some truths about them."""
        arrays: dict[str, np.ndarray] = {}
        annotations: dict[str, str] = {}
        contracts: list[str] = []
        for name, shape in kinds.items():
            contract = self.chance(2)
            size = shape[0]
            interval = ""
            if name == "cu":
                steps = [self.pick((1, 0, 2)) for _ in range(sizes[size])]
                values = np.cumsum([0, *steps])
                extents = f"{size}+1"
                if contract:
                    contracts.append(f"assert all(cu[b] <= cu[b + 1] for b in range({size}))")
            else:
                extents = " ".join(shape)
                high = {"n": 4, "doc": 2}.get(name, sizes[size])
                length = int(np.prod([sizes[s] for s in shape]))
                values = np.array([self.below(high) for _ in range(length)])
                if name == "n" and contract:
                    contracts.append(f"assert all(n[b] <= 3 for b in range({size}))")
                elif name == "idx" and contract:
                    values = np.array(self.permutation(length))
                    pairs = f"for b in range({size}) for c in range(b)"
                    contracts.append(f"assert all(idx[b] != idx[c] {pairs})")
                elif name == "page" and contract:
                    interval = f', "0:{size}"'
                values = values.reshape([sizes[s] for s in shape])
            arrays[name] = values.astype(np.int64)
            annotations[name] = f'Int[Array, "{extents}"{interval}]'
        if contracts:
            self.features.add("contract")
        return arrays, annotations, contracts


@st.composite
def _nests(draw: st.DrawFn, data_guards: bool, opaque: bool) -> Nest:
    # Every choice comes from one drawn Random, which shrinks as single draws do; but of single
    # draws hypothesis makes five mutations of each example, and those are nearly all alike.
    random = draw(st.randoms(use_true_random=False))
    return made(random, data_guards=data_guards, opaque=opaque)
