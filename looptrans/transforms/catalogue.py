"""What can be done to a program, by name: arguments, one line of help, an example.

Plain data, so that help and messages need none of the transformations themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from looptrans.ir.step import Step

Kind: TypeAlias = Literal["loop", "statement", "name", "size", "factor", "operator"]
Function: TypeAlias = Callable[..., Step]


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of a transformation, or several of one kind.

    Attributes:
        name: What help calls it.
        kind: `loop` `j`, `j@12` or `j@S7`; `statement` a label; `name` an array or scalar; `size`
            an integer above 0; `factor` any integer; `operator` one of `MONOIDS`.
        repeated: Whether it may be given more than once.
        optional: Whether it may be left out.
    """

    name: str
    kind: Kind
    repeated: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A transformation as people read about it.

    Attributes:
        name: How it is called.
        slots: Its arguments in order.
        summary: What it does, in one line.
        example: A call.
        phrase: What one wants with it, for `cannot …`; names of slots in braces.
        done: Its participle, for `…, the read would come first`.
    """

    name: str
    slots: tuple[Slot, ...]
    summary: str
    example: str
    phrase: str
    done: str

    @property
    def signature(self) -> str:
        """The call with the arguments' names: `split(loop, size[, operator])`."""
        text = ""
        for slot in self.slots:
            part = f"{slot.name}, …" if slot.repeated else slot.name
            joined = f", {part}" if text else part
            text += f"[{joined}]" if slot.optional else joined
        return f"{self.name}({text})"


_LOOP = Slot("loop", "loop")
_LOOPS = Slot("loop", "loop", repeated=True)

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        "interchange",
        (Slot("outer", "loop"), Slot("inner", "loop")),
        "swap two loops, one directly inside the other",
        "interchange(i, j)",
        "interchange {outer} and {inner}",
        "interchanged",
    ),
    Entry(
        "permute",
        (_LOOPS,),
        "put the loops of a nest into this order, outermost first",
        "permute(k, i, j)",
        "permute the loops to {loop}",
        "permuted",
    ),
    Entry(
        "reverse",
        (_LOOP,),
        "run a loop from its last iteration to its first",
        "reverse(j)",
        "reverse {loop}",
        "reversed",
    ),
    Entry(
        "skew",
        (Slot("inner", "loop"), Slot("outer", "loop"), Slot("factor", "factor")),
        "shift the inner loop by factor times the outer one",
        "skew(j, i, 1)",
        "skew {inner} by {outer}",
        "skewed",
    ),
    Entry(
        "strip_mine",
        (_LOOP, Slot("size", "size")),
        "run a loop in strips of this size",
        "strip_mine(j, 32)",
        "strip-mine {loop}",
        "strip-mined",
    ),
    Entry(
        "tile",
        (_LOOPS, Slot("size", "size", repeated=True)),
        "run nested loops in tiles, one size for each loop",
        "tile(i, j, 32, 32)",
        "tile {loop}",
        "tiled",
    ),
    Entry(
        "distribute",
        (_LOOP, Slot("statement", "statement", repeated=True, optional=True)),
        "split a loop into several, one after another",
        "distribute(j, S4)",
        "distribute {loop}",
        "distributed",
    ),
    Entry(
        "fuse",
        (Slot("first", "loop"), Slot("second", "loop")),
        "join two loops that stand one after the other",
        "fuse(j@17, j@20)",
        "fuse {first} and {second}",
        "fused",
    ),
    Entry(
        "hoist",
        (Slot("statement", "statement"), _LOOP),
        "move a statement that a loop repeats to above the loop",
        "hoist(S1, j)",
        "hoist {statement} out of {loop}",
        "hoisted",
    ),
    Entry(
        "privatize",
        (_LOOP, Slot("name", "name", repeated=True, optional=True)),
        "give each iteration of a loop its own copy of locals",
        "privatize(i, q_i)",
        "make {name} private to each iteration of {loop}",
        "privatized",
    ),
    Entry(
        "expand",
        (Slot("name", "name"), _LOOPS),
        "give a local a dimension for each of these loops",
        "expand(acc, i)",
        "expand {name} over {loop}",
        "expanded",
    ),
    Entry(
        "promote",
        (Slot("array", "name"), _LOOP),
        "keep an element of an array in a local across a loop",
        "promote(m, j)",
        "keep {array} in a local across {loop}",
        "kept in a local",
    ),
    Entry(
        "parallelize",
        (_LOOP,),
        "run the iterations of a loop in parallel",
        "parallelize(i)",
        "run {loop} in parallel",
        "in parallel",
    ),
    Entry(
        "split",
        (_LOOP, Slot("size", "size"), Slot("operator", "operator", optional=True)),
        "split a reduction into partial results and a combine",
        "split(k, 64, +)",
        "split {loop} into partial results",
        "split",
    ),
    Entry(
        "ordered_atomics",
        (_LOOP,),
        "run a loop in parallel, updates taking turns in its order",
        "ordered_atomics(j)",
        "run {loop} in parallel with updates that take turns",
        "with ordered atomics",
    ),
    Entry(
        "phased_atomics",
        (_LOOPS,),
        "run loops as one, in parallel: updates atomic, barriers between",
        "phased_atomics(j@17, j@20)",
        "run {loop} in parallel with atomics in phases",
        "with atomics in phases",
    ),
    Entry(
        "block_reduce",
        (_LOOPS,),
        "run loops as one, in parallel: updates combined in the block",
        "block_reduce(j@17, j@20)",
        "reduce over {loop} within the thread block",
        "reduced within the block",
    ),
)

NAMES: Final = tuple(entry.name for entry in ENTRIES)


def entry_of(name: str) -> Entry | None:
    """Return what is known of a transformation, or None where there is none of this name."""
    return next((entry for entry in ENTRIES if entry.name == name), None)


def function_of(name: str) -> Function:
    """Return a transformation; nothing but its own module is imported.

    Raises:
        KeyError: There is none of this name.
    """
    match name:
        case "interchange":
            from looptrans.transforms.steps.interchange import interchange

            return interchange
        case "permute":
            from looptrans.transforms.steps.permute import permute

            return permute
        case "reverse":
            from looptrans.transforms.steps.reverse import reverse

            return reverse
        case "skew":
            from looptrans.transforms.steps.skew import skew

            return skew
        case "strip_mine":
            from looptrans.transforms.steps.strip_mine import strip_mine

            return strip_mine
        case "tile":
            from looptrans.transforms.steps.tile import tile

            return tile
        case "distribute":
            from looptrans.transforms.steps.distribute import distribute

            return distribute
        case "fuse":
            from looptrans.transforms.steps.fuse import fuse

            return fuse
        case "hoist":
            from looptrans.transforms.steps.hoist import hoist

            return hoist
        case "privatize":
            from looptrans.transforms.steps.privatize import privatize

            return privatize
        case "expand":
            from looptrans.transforms.steps.expand import expand

            return expand
        case "promote":
            from looptrans.transforms.steps.promote import promote

            return promote
        case "parallelize":
            from looptrans.transforms.steps.parallelize import parallelize

            return parallelize
        case "split":
            from looptrans.transforms.steps.split import split

            return split
        case "ordered_atomics":
            from looptrans.transforms.steps.ordered_atomics import ordered_atomics

            return ordered_atomics
        case "phased_atomics":
            from looptrans.transforms.steps.phased_atomics import phased_atomics

            return phased_atomics
        case "block_reduce":
            from looptrans.transforms.steps.block_reduce import block_reduce

            return block_reduce
        case _:
            raise KeyError(name)
