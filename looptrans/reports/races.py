"""What parallel runs show: whether shuffled executions agree, and the races, as text and as JSON.

error[E052]: race on s: S2(0) and S2(1) both write s, and nothing orders them
  sum.py:4 | s += a[i]  # S2
             ^
  the iterations i=0 and i=1 of the parallel loop run in any order
  help: make the update atomic (with atomic():), combine the updates in a tree …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from looptrans.executor.agreement import Agreement
from looptrans.executor.inputs import Inputs
from looptrans.executor.races import Race, Touch
from looptrans.ir.program import Assign, Atomic, BlockReduce, Program
from looptrans.ir.step import Step
from looptrans.ir.value import Binary, Call, Read, walk_value
from looptrans.ir.verdict import Verdict, Witness
from looptrans.ir.walk import Placed, accesses, placed
from looptrans.reports.style import PLAIN, Style, paragraph, printable
from looptrans.reports.verdict_place import excerpt, marked_statements
from looptrans.reports.verdict_words import instance
from looptrans.reports.words import counted
from looptrans.transforms.mistakes import Race as RaceMistake

MOST_SHOWN: Final = 8


def agreement_text(agreement: Agreement, races: Sequence[Race]) -> str:
    """Return a line on how many shuffled executions agree, and one where there is no race."""
    lines = []
    if agreement.count:
        lines += paragraph(_agreement_words(agreement), rest="  ")
    if not races:
        lines.append("no race on these inputs")
    return "\n".join(lines) + "\n" if lines else ""


def _agreement_words(agreement: Agreement) -> str:
    one = agreement.count == 1
    agree = (
        f"{agreement.close} of {counted(agreement.count, 'shuffled execution')} "
        f"{'agrees' if one else 'agree'}"
    )
    distance = (
        f"the largest difference is {agreement.difference:.2g}, in {printable(agreement.output)}"
        if agreement.difference
        else ""
    )
    words = [agree, distance]
    if agreement.equal == agreement.count:
        words = [f"{agree} bit for bit"]
    elif agreement.is_full:
        words = [f"{agree} up to rounding", distance]
    if agreement.failure is not None:
        words.append(f"one fails: {agreement.failure.message}")
    return "; ".join(word for word in words if word)


def races_text(
    program: Program, inputs: Inputs, races: Sequence[Race], style: Style = PLAIN
) -> str:
    """Return what races: what, where, why, and what to do, an empty line between two."""
    shown = ["\n".join(_race(program, inputs, race, style)) for race in races[:MOST_SHOWN]]
    if len(races) > MOST_SHOWN:
        shown.append(f"and {counted(len(races) - MOST_SHOWN, 'more race')}; --format json has all")
    return "\n\n".join(shown) + "\n" if shown else ""


def _race(program: Program, inputs: Inputs, race: Race, style: Style) -> list[str]:
    word = f"error[{RaceMistake.code}]"
    (head, *more) = paragraph(_heading(race), f"{word}: ", "  ")
    lines = [style.paint("bad", word) + head[len(word) :], *more]
    witness = Witness(
        "race", tuple(inputs.integers.items()), race.first.iteration, race.second.iteration
    )
    verdict = Verdict(
        "illegal",
        witness,
        source=race.first.label,
        sink=race.second.label,
        array=race.array,
        cell=race.cell,
    )
    for line, carets in excerpt(marked_statements(Step("", program, program, verdict, {}))):
        lines.append(line)
        if carets:
            lines.append(carets[: -len(carets.lstrip())] + style.paint("bad", carets.lstrip()))
    places = {place.label: place for place in placed(program)}
    first, second = places[race.first.label], places[race.second.label]
    lines += paragraph(_reason(race, first, second), "  ", "    ")
    return [*lines, *paragraph(f"help: {_help(program, race, first, second)}", "  ", "    ")]


def _heading(race: Race) -> str:
    cell = f"{printable(race.array)}[{','.join(map(str, race.cell))}]" if race.cell else ""
    cell = cell or printable(race.array)
    one, other = (instance(touch.label, touch.iteration) for touch in (race.first, race.second))
    if race.first.is_write and race.second.is_write:
        told = f"{one} and {other} both write {cell}"
    elif race.first.is_write:
        told = f"{one} writes {cell} and {other} reads it"
    else:
        told = f"{one} reads {cell} and {other} writes it"
    return f"race on {printable(race.array)}: {told}, and nothing orders them"


def _reason(race: Race, first: Placed, second: Placed) -> str:
    loop = printable(race.loop)
    reducing = [place for place in (first, second) if _operators(place, race.array)]
    if reducing and _innermost(reducing[0]) == race.loop:
        return (
            f"{printable(reducing[0].label)} hands its part in; {printable(race.array)} changes "
            f"where the phase of the parallel loop {loop} ends"
        )
    one, other = dict(race.first.iteration)[race.loop], dict(race.second.iteration)[race.loop]
    return f"the iterations {loop}={one} and {loop}={other} of the parallel loop run in any order"


def _help(program: Program, race: Race, first: Placed, second: Placed) -> str:
    """Return what to do about a race, in one sentence."""
    name, loop = printable(race.array), printable(race.loop)
    labels = list(dict.fromkeys((printable(first.label), printable(second.label))))
    reducing = [place for place in (first, second) if _operators(place, race.array)]
    if len(reducing) == 2:
        return "reduce with one operator, or put barrier() between the two"
    if reducing:
        return f"put barrier() between {' and '.join(labels)}, or use atomic blocks for both"
    if _is_temporary(program, race, first, second):
        return f"give each iteration of {loop} its own {name}, with private: {name}"
    turn = f"with atomic(turn={loop}):"
    if len(labels) == 1 and _is_update(first, race.array):
        operator = _operator(first, race.array)
        tree = f'combine the updates in a tree (with reduce("{operator}"):), ' if operator else ""
        return (
            f"make the update atomic (with atomic():), {tree}"
            f"or let the iterations take turns ({turn})"
        )
    if len(labels) == 1:
        return f"use different cells, or let the iterations take turns ({turn})"
    atomic = [
        any(isinstance(section, Atomic) for section in place.sections) for place in (first, second)
    ]
    if sum(atomic) == 1:
        return f"put {printable((second if atomic[0] else first).label)} into an atomic block too"
    level = next(
        len(position)
        for position, each in zip(first.loop_positions, first.loops, strict=True)
        if each.variable == race.loop
    )
    barrier = f"put barrier() between {' and '.join(labels)}, or "
    # Against the order of the text a barrier would make the later one the first.
    if first.position[level] >= second.position[level]:
        barrier = ""
    return f"{barrier}let the iterations take turns, both in one block ({turn})"


def _innermost(place: Placed) -> str:
    """Return the variable of the innermost parallel loop around a statement."""
    return [loop.variable for loop in place.loops if loop.execution == "parallel"][-1]


def _operators(place: Placed, array: str) -> list[str]:
    """Return the operator of the reducing block in which a statement updates an array."""
    if not (isinstance(place.node, Assign) and place.node.targets[0].array == array):
        return []
    return [each.operator for each in place.sections if isinstance(each, BlockReduce)]


def _is_update(place: Placed, array: str) -> bool:
    """Tell whether a statement changes a cell of the array by what was in it."""
    return isinstance(place.node, Assign) and any(
        part == Read(target)
        for target in place.node.targets
        if target.array == array
        for value in place.node.values
        for part in walk_value(value)
    )


def _operator(place: Placed, array: str) -> str:
    """Return the operator of `cell = cell op x`, if the statement is one of a reduce block."""
    if not isinstance(place.node, Assign) or place.node.targets[0].array != array:
        return ""
    own = Read(place.node.targets[0])
    match place.node.values:
        case (Binary("+" | "*" as op, left, _),) if left == own:
            return op
        case (Call("max" | "min" as op, (left, _)),) if left == own:
            return op
        case _:
            return ""


def _is_temporary(program: Program, race: Race, first: Placed, second: Placed) -> bool:
    """Tell whether a name is used in one loop only, and written there before it is read."""
    array = program.array(race.array)
    depth = next(n for n, loop in enumerate(first.loops) if loop.variable == race.loop)
    users = [
        place
        for place in placed(program)
        if any(each.access.array == race.array for each in accesses(place.node))
    ]
    inside = all(
        place.loop_positions[depth : depth + 1] == first.loop_positions[depth : depth + 1]
        for place in users
    )
    starts = [each for each in accesses(users[0].node) if each.access.array == race.array]
    return (
        array.role == "local"
        and race.array not in program.outputs
        and inside
        and all(each.is_write for each in starts)
        and second.loops[depth] == first.loops[depth]
    )


# JSON


def agreement_document(agreement: Agreement, races: Sequence[Race]) -> dict[str, Any]:
    """Return what `looptrans.run/1` says besides of a parallel listing."""
    return {
        "shuffles": {
            "count": agreement.count,
            "equal": agreement.equal,
            "agree": agreement.close,
            "difference": _number(agreement.difference),
            "failure": None if agreement.failure is None else agreement.failure.message,
        },
        "races": [
            {
                "array": race.array,
                "cell": list(race.cell),
                "loop": race.loop,
                "first": _touch(race.first),
                "second": _touch(race.second),
            }
            for race in races
        ],
    }


def _number(value: float) -> float | str:
    return value if value != float("inf") else "inf"


def _touch(touch: Touch) -> Mapping[str, Any]:
    return {
        "statement": touch.label,
        "iteration": dict(touch.iteration),
        "writes": touch.is_write,
    }
