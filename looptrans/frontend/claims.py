"""The grammar of claims: what the comments beside statements say, read but not judged.

    No self dependency · Self dependency over j
    SLoop: (i, (i, j)) · TLoop: (i, j) · Aggregation over j
    RAW on q_i, and k_j · WAR on m[i] · WAW on l

A list may do without commas and `SLoop (i, j)` without its colon where nothing but loops follows.

Claims stand anywhere in a trailing comment; everything else in it is prose. A claim that is begun
and cannot be read (an unknown loop, a bracket that is not closed) is `Malformed`, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from looptrans.frontend.operands import operands, written_operands
from looptrans.ir.claim import (
    Aggregation,
    Claim,
    Malformed,
    SelfDependence,
    SourceLoops,
    TargetLoops,
    Touches,
    TouchKind,
)
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.source import as_named
from looptrans.ir.walk import placed

Tree: TypeAlias = "str | tuple[Tree, ...]"
Loops: TypeAlias = tuple[str, ...]

DEEPEST: Final = 40
LONGEST: Final = 300
MOST_CHOICES: Final = 100
_SHOWN: Final = 60

_NEGATION = r"(?:(?P<negated>(?i:\b(?:no|not|without)(?:\s+any?)?))\s+)?"
_KIND = r"(?:RAW|WAR|WAW)"
_HEAD = re.compile(
    rf"{_NEGATION}(?:"
    rf"(?P<loops>(?i:\b[ST]loops?)\b)\s*(?P<colon>:?)"
    rf"|(?P<kinds>\b{_KIND}(?:\s*(?:/|,|&|\band\b)\s*{_KIND})*)\s+(?i:on)\b"
    r"|(?P<itself>(?i:\bself[\s-]+dependen(?:cy|ce|cies|ces)))\b(?P<over>\s+(?i:on|over)\b)?"
    r"|(?P<aggregation>(?i:\baggregation\s+over))\b"
    r")"
)
# A positive claim of a self dependence is one only at the start of a phrase.
_PHRASE_START = re.compile(r"(?:^|[:;,#.\[(])\s*$")
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_SEPARATOR = re.compile(r"\s*(?:(?:,|/|&)\s*)?(?:\band\b)?\s*")
_END = re.compile(r"\s*(?:$|[,;:#.)\]]|and\b)")
_KIND_WORD = re.compile(_KIND)


class _Unreadable(Exception):
    """A list that cannot be read; the message says why."""


def read_claims(program: Program) -> tuple[Claim, ...]:
    """Return the claims of all statements, in the order of the text.

    A list of names is a claim for each of them, and `SLoop` is one for each operand, so that each
    is judged by itself. Claims that are denied (`no RAW on m`) are prose, save the self dependence.
    """
    arrays = frozenset(array.name for array in program.arrays)
    parameters = frozenset(parameter.name for parameter in program.parameters)
    claims: list[Claim] = []
    for place in placed(program):
        if isinstance(place.node, Assign) and place.node.comment:
            around = frozenset(loop.variable for loop in place.loops)
            claims += dict.fromkeys(_Comment(place.node, around, arrays, parameters).claims())
    return tuple(claims)


@dataclass(slots=True)
class _Comment:
    """Reads the claims of one comment from left to right."""

    statement: Assign
    around: frozenset[str]
    arrays: frozenset[str]
    parameters: frozenset[str]
    at: int = 0

    @property
    def text(self) -> str:
        return as_named(self.statement.comment)

    def claims(self) -> Iterator[Claim]:
        while (head := _HEAD.search(self.text, self.at)) is not None:
            self.at = head.end()
            try:
                yield from self._claim(head)
            except _Unreadable as error:
                yield self._malformed(self._quoted(head), str(error))
                self.at = head.end()

    def _claim(self, head: re.Match[str]) -> Iterator[Claim]:
        label, line = self.statement.label, self.statement.span.line
        denied = head["negated"] is not None
        if head["itself"] is not None:
            before = self.text[max(head.start() - _SHOWN, 0) : head.start()]
            if not denied and not _PHRASE_START.search(before):
                return
            loops = self._flat_loops() if head["over"] is not None else ()
            said = "No self dependency" if denied else "Self dependency"
            text = f"{said} over {_written(loops)}" if loops else said
            yield self._checked(SelfDependence(label, line, text, not denied, loops))
        elif denied:
            return
        elif head["kinds"] is not None:
            names = tuple(self._names())
            for kind in dict.fromkeys(_KIND_WORD.findall(head["kinds"])):
                yield from self._touches(kind, names)
        elif head["aggregation"] is not None:
            loops = self._flat_loops()
            text = f"Aggregation over {', '.join(loops)}"
            yield self._checked(Aggregation(label, line, text, loops))
        elif head["loops"] is not None and not head["colon"] and not self._only_loops():
            return
        elif head["loops"][0] in "tT":
            loops = self._flat_loops()
            yield self._checked(TargetLoops(label, line, f"TLoop: {_written(loops)}", loops))
        else:
            yield from self._source_loops(self._tree())

    def _checked(self, claim: SelfDependence | SourceLoops | TargetLoops | Aggregation) -> Claim:
        """Return the claim, or why it has no meaning where it stands."""
        unknown = [loop for loop in dict.fromkeys(claim.loops) if loop not in self.around]
        if not unknown:
            return claim
        names = " or ".join(unknown)
        return self._malformed(claim.text, f"there is no loop {names} around {claim.statement}")

    def _malformed(self, text: str, reason: str) -> Malformed:
        return Malformed(self.statement.label, self.statement.span.line, text, reason)

    def _quoted(self, head: re.Match[str]) -> str:
        start = self.text[head.start() : head.end() + LONGEST]
        text = " ".join(start.partition("#")[0].split())
        return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"

    def _touches(self, kind: TouchKind, names: tuple[tuple[str, str], ...]) -> Iterator[Claim]:
        label = self.statement.label
        for name, shown in names:
            text = f"{kind} on {shown}"
            if name in self.arrays:
                yield Touches(label, self.statement.span.line, text, kind, name)
            elif name in self.parameters:
                yield self._malformed(text, f"{name} is a parameter, and nothing writes it")
            else:
                yield self._malformed(text, f"there is no array or scalar {name} in the listing")

    def _source_loops(self, tree: tuple[Tree, ...]) -> Iterator[Claim]:
        """Read the tree as one entry for each operand, in the reading that fits their number."""
        label, line = self.statement.label, self.statement.span.line
        full, written = operands(self.statement), written_operands(self.statement)
        reasons = []
        for given in dict.fromkeys((written, full)):
            try:
                entries = _entries(tree, len(given))
            except _Unreadable as error:
                reasons.append(str(error))
                continue
            first = len(full) - len(given)
            for number, (access, loops) in enumerate(zip(given, entries, strict=True), first):
                name = access_text(access)
                text = f"SLoop: {_written(loops)} for {name}"
                yield self._checked(SourceLoops(label, line, text, number, name, loops))
            return
        yield self._malformed(f"SLoop: {_written(tree)}", reasons[0])

    # Lists of loops: `i`, `i, j`, `i and j`, `(i, (i, j))`.

    def _flat_loops(self) -> Loops:
        tree = self._tree()
        while len(tree) == 1 and not isinstance(tree[0], str):
            tree = tree[0]
        names = tuple(name for name in tree if isinstance(name, str))
        if len(names) != len(tree):
            raise _Unreadable("it is about one target, so its list of loops has no lists in it")
        return tuple(dict.fromkeys(names))

    def _tree(self) -> tuple[Tree, ...]:
        """Read the list at the cursor.

        Raises:
            _Unreadable: There is none, or its brackets do not match.
        """
        self._skip(_SPACE)
        items: list[Tree] = []
        while True:
            item = self._group() if self.text.startswith("(", self.at) else self._loop(not items)
            if item is None:
                break
            items.append(item)
            separator = _SEPARATOR.match(self.text, self.at)
            if separator is None or not separator[0]:
                break
            before, self.at = self.at, separator.end()
            goes_on = (
                self._goes_on(self.around, "(") if separator[0].strip() else self._only_names()
            )
            if not goes_on:
                self.at = before
                break
        if not items:
            raise _Unreadable("it names no loop")
        if len(items) == 1 and not isinstance(items[0], str):
            return items[0]
        return tuple(items)

    def _loop(self, first: bool) -> str | None:
        name = _NAME.match(self.text, self.at)
        if name is None or (first and _HEAD.match(self.text, self.at)):
            return None
        self.at = name.end()
        return name[0]

    def _group(self) -> tuple[Tree, ...]:
        """Read from an opening parenthesis to the one that closes it."""
        stack: list[list[Tree]] = []
        while self.at < len(self.text):
            sign = self.text[self.at]
            name = _NAME.match(self.text, self.at)
            if name is not None:
                if name[0].lower() != "and":
                    stack[-1].append(name[0])
                self.at = name.end()
                continue
            self.at += 1
            if sign == "(":
                if len(stack) == DEEPEST:
                    raise _Unreadable("its lists are nested too deeply")
                stack.append([])
            elif sign == ")":
                group = tuple(stack.pop())
                if not stack:
                    return group
                stack[-1].append(group)
            elif sign != "," and not sign.isspace():
                raise _Unreadable(f"its list has a {sign!r} where a loop should be")
        raise _Unreadable("a parenthesis of its list is not closed")

    # Lists of arrays and scalars: `q_i, and k_j`, `l_ij l[i]`.

    def _names(self) -> Iterator[tuple[str, str]]:
        """Read names at the cursor; each with how it is written, subscripts included.

        Raises:
            _Unreadable: There is none, or a bracket is not closed.
        """
        self._skip(_SPACE)
        opened = self.text.startswith("(", self.at)
        self.at += opened
        self._skip(_SPACE)
        found = 0
        while (name := _NAME.match(self.text, self.at)) and not _HEAD.match(self.text, self.at):
            self.at = name.end()
            while self.text.startswith("[", self.at):
                self._subscript()
            yield name[0], " ".join(self.text[name.start() : self.at].split())
            found += 1
            separator = _SEPARATOR.match(self.text, self.at)
            if separator is None or not separator[0]:
                break
            before, self.at = self.at, separator.end()
            if not self._goes_on(
                self.arrays | self.parameters, "", only_known=not separator[0].strip()
            ):
                self.at = before
                break
        self._skip(_SPACE)
        if not found:
            raise _Unreadable("it names no array or scalar")
        if opened and not self.text.startswith(")", self.at):
            raise _Unreadable("the parenthesis of its list is not closed")

    def _subscript(self) -> None:
        depth = 0
        for position in range(self.at, min(self.at + LONGEST, len(self.text))):
            depth += {"[": 1, "]": -1}.get(self.text[position], 0)
            if depth == 0:
                self.at = position + 1
                return
            if self.text[position] == "#":
                break
        raise _Unreadable("a bracket of its list is not closed")

    def _goes_on(self, known: frozenset[str], opening: str, *, only_known: bool = False) -> bool:
        """Tell whether the list goes on at the cursor, rather than prose or another claim."""
        if _HEAD.match(self.text, self.at):
            return False
        if opening and self.text.startswith(opening, self.at):
            return True
        name = _NAME.match(self.text, self.at)
        if name is None:
            return False
        if name[0] in known or (not opening and self.text.startswith("[", name.end())):
            return True
        return not only_known and _END.match(self.text, name.end()) is not None

    def _only_names(self) -> bool:
        """Tell whether names of loops, parted by spaces, are all that comes before a sign."""
        return self._ends(self._behind_loops(_SPACE))

    def _only_loops(self) -> bool:
        """Tell whether a list of loops is all that comes before a sign."""
        self._skip(_SPACE)
        if not self.text.startswith("(", self.at):
            return self._ends(self._behind_loops(_SEPARATOR))
        depth = 0
        for end in range(self.at, min(self.at + LONGEST, len(self.text))):
            depth += {"(": 1, ")": -1}.get(self.text[end], 0)
            if depth == 0:
                names = _NAME.findall(self.text[self.at : end])
                return set(names) - {"and"} <= self.around and self._ends(end + 1)
        return False

    def _behind_loops(self, separator: re.Pattern[str]) -> int | None:
        """Return where names of loops end that begin at the cursor, or None where there is none."""
        at, found = self.at, None
        while (name := _NAME.match(self.text, at)) and name[0] in self.around:
            found = name.end()
            between = separator.match(self.text, found)
            at = found if between is None else between.end()
        return found

    def _ends(self, at: int | None) -> bool:
        """Tell whether a phrase ends at a place, or another claim begins."""
        if at is None:
            return False
        if _END.match(self.text, at) is not None:
            return True
        spaces = _SPACE.match(self.text, at)
        return spaces is not None and _HEAD.match(self.text, spaces.end()) is not None

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found is not None else self.at


def _written(tree: Tree) -> str:
    """Return a list as it is written: `i`, `(i, (i, j))`."""
    if isinstance(tree, str):
        return tree
    if len(tree) == 1:
        return _written(tree[0])
    return f"({', '.join(_written(item) for item in tree)})"


def _is_pure(tree: tuple[Tree, ...]) -> bool:
    return all(isinstance(item, str) for item in tree)


def _units(tree: tuple[Tree, ...]) -> Iterator[Loops]:
    """Yield the loops and innermost lists of loops of a list, left to right."""
    for item in tree:
        if isinstance(item, str):
            yield (item,)
        elif _is_pure(item):
            yield tuple(name for name in item if isinstance(name, str))
        else:
            yield from _units(item)


def _entries(tree: tuple[Tree, ...], number: int) -> tuple[Loops, ...]:
    """Read a list as the loops of `number` operands.

    An innermost list, `(i, j)`, is one operand's; where there are too few of them it is the lists
    of as many operands as it has loops, all of them or, if only one choice fits, some.

    Raises:
        _Unreadable: No reading fits, or several do.
    """
    if _is_pure(tree) and number == 1:
        return (tuple(name for name in tree if isinstance(name, str)),)
    if not tree and number == 0:
        return ()
    units = tuple(_units(tree)) if tree else ((),)
    if len(units) == number:
        return units
    choices = _choices(units, number)
    everything = tuple(len(unit) > 1 for unit in units)
    if sum(max(len(unit), 1) for unit in units) == number:
        choices = [everything]
    if not choices:
        listed = f"{len(units)} {'entry' if len(units) == 1 else 'entries'}"
        has = f"{number} operand{'' if number == 1 else 's'}"
        raise _Unreadable(f"its list has {listed}, and the statement has {has}")
    if len(choices) > 1:
        raise _Unreadable(f"its list can be read in several ways for {number} operands")
    return tuple(
        loops
        for unit, opened in zip(units, choices[0], strict=True)
        for loops in (((name,) for name in unit) if opened else (unit,))
    )


def _choices(units: tuple[Loops, ...], number: int) -> list[tuple[bool, ...]]:
    """Return up to two ways to open some of the lists so that there are `number` entries."""
    extra = number - len(units)
    if extra <= 0 or number > MOST_CHOICES:
        return []
    ways: dict[int, list[tuple[bool, ...]]] = {0: [()]}
    for unit in units:
        more: dict[int, list[tuple[bool, ...]]] = {}
        for opened in (False, True) if len(unit) > 1 else (False,):
            for count, found in ways.items():
                total = count + (len(unit) - 1) * opened
                if total <= extra:
                    kept = more.setdefault(total, [])
                    kept += [(*way, opened) for way in found[: 2 - len(kept)]]
        ways = more
    return ways.get(extra, [])
