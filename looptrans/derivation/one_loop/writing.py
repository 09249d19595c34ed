"""Updates written as statements of a listing.

    s1 <- max(s1, x1)                        m_ij = max(m[i], S[i, j])
    s2 <- s2 * exp(s1 - t1) + exp(x1 - t1)   l[i] = l[i] * exp(m[i] - m_ij) + exp(S[i, j] - m_ij)
                                             m[i] = m_ij

`t1` stands for the next value of `s1`. What another update still reads is kept until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from looptrans.algebra.iterations.one_order import with_sums
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.positional.bound import kept_apart
from looptrans.algebra.positional.values import names_of, put
from looptrans.derivation.step import NotDone
from looptrans.frontend import parse
from looptrans.frontend.appearance import names_in
from looptrans.frontend.comments import label_of
from looptrans.ir.condition import Condition, Data, Every, Relation
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.index import Index
from looptrans.ir.listing import access_text, listing
from looptrans.ir.program import Array, Assign, Element, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Holds,
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Value,
    walk_value,
)
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import statements_in


@dataclass(frozen=True, slots=True)
class Update:
    """The next value of a cell, or of a row of cells.

    Attributes:
        state: Its name in formulas, `s1`; its next value is `t1`.
        cell: Where it lives.
        over: The inner loop variables it is a vector over.
        value: The next value, over `s…`, `t…` of others and the names of what is given.
        label: The label the statement is to have, if it is free.
        guard: Where given, the old value stays unless it holds.
    """

    state: str
    cell: Access
    over: tuple[str, ...]
    value: Value
    label: str = ""
    guard: Condition | None = None

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops to be written around the statement."""
        return tuple(name for name in self.over if name != ":")

    @property
    def guarded(self) -> Value:
        """The next value with its guard."""
        if self.guard is None:
            return self.value
        return Select(self.guard, self.value, Real(self.state))

    @property
    def next(self) -> str:
        """The name of the next value."""
        return "t" + self.state[1:]


def with_next_values(updates: Mapping[str, Value]) -> dict[str, Value]:
    """Replace the updates of some states inside the updates of others by `t…`."""
    found = {}
    for name, update in updates.items():
        others: dict[Value, Value] = {
            value: Real("t" + other[1:])
            for other, value in updates.items()
            if other != name and not isinstance(value, Real | Const)
        }
        offered = {among: others[value] for value in others if (among := _among(value))}

        def change(
            part: Value,
            others: dict[Value, Value] = others,
            offered: dict[tuple[str, frozenset[Value]], Value] = offered,
        ) -> Value | None:
            among = _among(part)
            return others.get(part) or (offered.get(among) if among else None)

        found[name] = flattened(replaced(update, change))
    return found


def _among(value: Value) -> tuple[str, frozenset[Value]] | None:
    """Return what a maximum or minimum is taken of, in whichever order and however nested."""
    match value:
        case Call("max" | "min" as name, parts) if len(parts) > 1:
            found = [(part, _among(part)) for part in parts]
            sets = [a[1] if a and a[0] == name else frozenset({part}) for part, a in found]
            return name, frozenset[Value]().union(*sets)
        case _:
            return None


def flattened(value: Value) -> Value:
    """Write `a * (b / c)` as `a * b / c` and `a * (b * c)` as `a * b * c`."""

    def change(part: Value) -> Value | None:
        match part:
            case Binary("*", left, Binary("/" | "*" as op, upper, lower)):
                return flattened(Binary(op, Binary("*", left, upper), lower))
            case _:
                return None

    return replaced(value, change)


def at_least_one(finite: Iterable[tuple[str, float]]) -> Condition | None:
    """Return the condition that some next values have left the infinity they start from."""
    tests = tuple(
        Data(Compare(">" if start < 0 else "<", Real(name), Const(start))) for name, start in finite
    )
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else Every(tests)


@dataclass(slots=True)
class Writer:
    """Writes statements into a program that does not have them yet.

    Attributes:
        program: The program, without what is to be replaced; grows by the arrays that are made.
        taken: Labels and names that are in use besides.
    """

    program: Program
    labels: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.labels |= set(statements_in(self.program.body))
        used = names_in(self.program.contracts, self.program.body)
        seen = {*self.program.arguments, *self.program.outputs, *used}
        kept = tuple(array for array in self.program.arrays if array.name in seen)
        self.program = replace(self.program, arrays=kept)

    def label(self, wish: str = "") -> str:
        """Return a label that is free."""
        if wish and wish not in self.labels:
            self.labels.add(wish)
            return wish
        found = next(f"S{n}" for n in count(1) if f"S{n}" not in self.labels)
        self.labels.add(found)
        return found

    def array(self, wish: str, shape: tuple[Index, ...] = (), element: Element = "float") -> str:
        """Add a local array, or a scalar, under a name that is free."""
        name = fresh_name(self.program, wish, self.names)
        made = Array(name, len(shape), element, "local", shape)
        self.program = replace(self.program, arrays=(*self.program.arrays, made))
        return name

    def assign(self, cell: Access, value: Value, label: str = "", comment: str = "") -> Assign:
        """Return a statement."""
        return Assign(self.label(label), (cell,), (value,), comment=comment)

    def updates(
        self,
        updates: tuple[Update, ...],
        given: Mapping[str, Value],
        ranges: Mapping[str, Range],
        suffix: str,
    ) -> tuple[Node, ...]:
        """Write updates that happen all at once as statements one after another.

        Args:
            updates: The updates.
            given: What the other names in them stand for in the listing.
            ranges: The ranges of the inner loops.
            suffix: What the names of temporaries end in, after the array and an underscore.
        """
        return _Updates(self, updates, dict(given), ranges, suffix).written()


@dataclass(slots=True)
class _Updates:
    writer: Writer
    updates: tuple[Update, ...]
    names: dict[str, Value]
    ranges: Mapping[str, Range]
    suffix: str

    def written(self) -> tuple[Node, ...]:
        for update in self.updates:
            self.names[update.state] = Read(update.cell)
        statements: list[tuple[tuple[str, ...], Assign]] = []
        last: list[tuple[tuple[str, ...], Assign]] = []
        written: set[str] = set()
        for update in self._in_order():
            readers = [u for u in self.updates if u is not update]
            old = any(update.state in names_of(u.guarded) for u in readers)
            new = any(update.next in _names(u) for u in readers)
            if update.loops and any(
                u.loops != update.loops and {update.state, update.next} & set(_names(u))
                for u in readers
            ):
                raise NotDone(
                    f"{access_text(update.cell)} is read for other values of "
                    f"{', '.join(update.loops)}"
                )
            if ":" in update.over and (old or new):
                raise NotDone(f"the row {access_text(update.cell)} is read by another update")
            value = put(update.guarded, self.names)
            if not old or (not new and not written & set(_names(update))):
                # Nobody needs the old value; or nobody the new one, and it can be written last.
                statement = self.writer.assign(update.cell, value, update.label)
                self.names[update.next] = Read(update.cell)
                (last if old else statements).append((update.loops, statement))
                written |= {update.state} if old else set()
                continue
            element = self.writer.program.array(update.cell.array).element
            name = self.writer.array(self._name(update), (), element)
            temporary = Access(name, ())
            self.names[update.next] = Read(temporary)
            statements.append((update.loops, self.writer.assign(temporary, value, update.label)))
            copy = Assign("", (update.cell,), (Read(temporary),))
            last.append((update.loops, copy))
            written.add(update.state)
        return self._nested([*statements, *last])

    def _in_order(self) -> list[Update]:
        """Return the updates so that each comes after those whose next values it reads."""
        names = {u.next for u in self.updates}
        done: set[str] = set()
        left = sorted(self.updates, key=lambda u: bool(u.over))
        found: list[Update] = []
        while left:
            ready = next((u for u in left if not (names - done - {u.next}) & set(_names(u))), None)
            if ready is None:
                raise NotDone("the updates wait for each other")
            left.remove(ready)
            done.add(ready.next)
            found.append(ready)
        return found

    def _name(self, update: Update) -> str:
        stem = update.cell.array.replace(".", "_")
        return f"{stem}_{self.suffix}{''.join(update.loops)}"

    def _nested(self, statements: list[tuple[tuple[str, ...], Assign]]) -> tuple[Node, ...]:
        """Put statements into their loops; those with the same loops share them."""
        found: list[Node] = []
        groups: list[tuple[tuple[str, ...], list[Assign]]] = []
        for loops, statement in statements:
            mine = statement
            if not mine.label:
                mine = replace(mine, label=self.writer.label())
            home = next((g for g in groups if loops and g[0] == loops), None)
            if home is None:
                groups.append((loops, [mine]))
            else:
                home[1].append(mine)
        for loops, body in groups:
            node: tuple[Node, ...] = tuple(body)
            for variable in reversed(loops):
                node = (Loop(variable, self.ranges[variable], node),)
            found += node
        return tuple(found)


def _names(update: Update) -> tuple[str, ...]:
    return names_of(update.guarded)


def suffix_of(*variables: str) -> str:
    """Return loop variables as the end of a name: `ij`, or `row_col`."""
    joint = "" if all(len(variable) == 1 for variable in variables) else "_"
    return joint.join(dict.fromkeys(variables))


def is_costly(value: Value) -> bool:
    """Tell whether a value sums over something, so that it is not to be worked out twice."""
    return any(
        isinstance(part, Reduce) or (isinstance(part, Binary) and part.op == "@")
        for part in walk_value(value)
    )


def folded(value: Value, known: Mapping[Value, Value]) -> Value:
    """Replace what statements have already worked out by reads of where they left it."""

    def change(part: Value) -> Value | None:
        return known.get(part)

    return replaced(value, change)


def done(program: Program) -> Program:
    """Return a program as the frontend reads its listing, labels kept."""
    final, _ = finished(replace(program, body=rewritten(program.body, _labelled)), {})
    return reread(final)


def _labelled(node: Node) -> tuple[Node, ...]:
    """Write the label of a statement into its comment."""
    if not isinstance(node, Assign) or label_of(node.comment) == node.label:
        return (node,)
    comment = f"{node.label}: {node.comment}" if node.comment else node.label
    return (replace(node, comment=comment, labelled=True),)


def reread(program: Program) -> Program:
    """Read the listing of a program again, so that it is just what a saved text gives.

    Raises:
        NotDone: It is no listing, as where a bound would have to be no index expression.
    """
    try:
        return parse(Source("<derivation>", listing(kept_apart(program))))
    except ListingError as error:
        raise NotDone(f"what it would be cannot be read again: {error}") from None


def without(body: tuple[Node, ...], drop: Callable[[Node], bool]) -> tuple[Node, ...]:
    """Return a block without some nodes, and without the loops and guards that are left empty."""

    def change(node: Node) -> tuple[Node, ...]:
        if drop(node):
            return ()
        if isinstance(node, Assign):
            return (node,)
        bodies = [getattr(node, "body", None), getattr(node, "orelse", None)]
        blocks = [block for block in bodies if block is not None]
        return () if blocks and not any(blocks) else (node,)

    return rewritten(body, change)


def inputs_written(
    step: Recurrence,
    updates: dict[str, Value],
    known: Mapping[Value, Value],
    writer: Writer,
    around: list[str],
) -> tuple[tuple[Node, ...], dict[str, Value], dict[str, Value]]:
    """Say how the inputs of an iteration are written in the listing.

    What is costly and wanted more than once is worked out once, in a scalar of the iteration.

    Returns:
        The statements for that, what each input and parameter stands for, and the updates with
        what the iteration has worked out put in.
    """
    names = {item.value: Real(item.name) for item in (*step.inputs, *step.parameters)}
    there: dict[Value, Value] = {}
    for value, place in known.items():
        named = folded(tested_by_value(value), names)
        if not isinstance(named, Real):
            there[named] = place
    updates = {name: with_sums(folded(update, there), there) for name, update in updates.items()}
    extra: list[Node] = []
    given: dict[str, Value] = {}
    inside = dict(known)
    items = (*step.inputs, *step.parameters)
    for item in items:
        value = folded(item.value, known)
        wanted = [*updates.values(), *(other.value for other in items if other is not item)]
        uses = sum(part in (Real(item.name), item.value) for w in wanted for part in walk_value(w))
        if uses > 1 and not item.over and is_costly(value):
            name = writer.array(f"x_{suffix_of(*around, step.loop)}")
            cell = Access(name, ())
            extra.append(writer.assign(cell, value))
            value = inside[item.value] = Read(cell)
        given[item.name] = value
    for item in items:
        if inside.get(item.value) != given[item.name]:
            given[item.name] = folded(item.value, inside)
    return tuple(extra), given, updates


def tested_by_value(value: Value) -> Value:
    """Write the conditions of choices as tests of values, as recurrences have them."""

    def change(part: Value) -> Value | None:
        match part:
            case Select(Relation() as condition, chosen, otherwise):
                return Select(
                    Data(Holds(condition)), tested_by_value(chosen), tested_by_value(otherwise)
                )
            case _:
                return None

    return replaced(value, change)
