"""Reading compiled code: instructions, the loops among them, and what a loop does.

Two texts are read: SASS as `nvdisasm -c` prints it, and the AMD assembly that LLVM prints. Loops
are the natural loops of the control-flow graph (Aho, Lam, Sethi, Ullman, *Compilers*, 9.6), not
merely what stands between a label and a branch back to it: the compilers move blocks that seldom
run, such as the spinning on a barrier, behind the end of the kernel.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Flow: TypeAlias = Literal["next", "jump", "branch", "end"]
MANY = 8


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: With its suffixes, `MUFU.EX2`.
        operands: The rest of it.
        flow: Where control goes: on, elsewhere, either way, or nowhere.
        target: The label of a jump or branch.
        labels: The labels that stand before it.
    """

    opcode: str
    operands: str = ""
    flow: Flow = "next"
    target: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What some instructions do; a count is of instructions in the text, each run by a warp.

    Attributes:
        matrix: Matrix instructions by opcode, shape included: `{"HGMMA.64x128x16.F32.BF16": 4}`.
        exp2: Exponentials.
        divisions: Reciprocals; every division has one, that of integers too.
        spill_stores: Stores to the memory that a thread has of its own.
        spill_loads: Loads from it.
        waits: Waits until none of the wgmma instructions, which run on their own once issued, runs
            any more.
        exp2_in_flight: The exponentials that stand between the issue of a wgmma instruction and the
            wait for it.
        instructions: All instructions.
    """

    matrix: Mapping[str, int]
    exp2: int
    divisions: int
    spill_stores: int
    spill_loads: int
    waits: int
    exp2_in_flight: int
    instructions: int

    @property
    def kinds(self) -> dict[str, int]:
        """The matrix instructions by kind: mfma, mma.sync, tcgen05, wgmma."""
        found: Counter[str] = Counter()
        for opcode, number in self.matrix.items():
            found[str(matrix_kind(opcode))] += number
        return dict(sorted(found.items()))

    @property
    def serialized(self) -> bool:
        """Whether each wgmma instruction is waited for, so that nothing runs beside it."""
        return self.waits >= self.kinds.get("wgmma", 0) > 0


def named_loops(loops: Sequence[Work]) -> Iterator[tuple[str, Work]]:
    """Yield loops with what they are called; many in a row that do the same are called together.

    A cosine has a loop for large arguments, and so has each of those that are unrolled.
    """
    first = 1
    for _, group in itertools.groupby(loops, lambda loop: replace(loop, instructions=0)):
        same = tuple(group)
        if len(same) >= MANY:
            yield f"each of loops {first} to {first + len(same) - 1}", same[0]
        else:
            yield from ((f"loop {first + n}", loop) for n, loop in enumerate(same))
        first += len(same)


@dataclass(frozen=True, slots=True)
class Code:
    """What a kernel does as a whole, and in each innermost loop in the order of the text."""

    whole: Work
    loops: tuple[Work, ...]


def matrix_kind(opcode: str) -> str | None:
    """Return the kind of a matrix instruction, None for any other instruction."""
    return next((kind for kind, pattern in _MATRIX.items() if pattern.match(opcode)), None)


_MATRIX = {
    "wgmma": re.compile(r"[BHIQ]GMMA\b"),
    "mma.sync": re.compile(r"[A-Z]MMA\b"),
    "tcgen05": re.compile(r"UTC[A-Z]*MMA\b"),
    "mfma": re.compile(r"v_s?mfma"),
}
_LABEL = re.compile(r"\s*([.$\w]+):")
_SASS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+\{?\s*(@!?\w+)?\s*([A-Z][\w.]*)\s*([^;]*);")
_SASS_TARGET = re.compile(r"(.*?),?\s*`\((\S+)\)")
_AMD = re.compile(r"\s+([a-z]\w*)\s*([^;]*)")


def sass(text: str) -> list[Instruction]:
    """Read what `nvdisasm -c` prints of a cubin with one kernel."""
    found: list[Instruction] = []
    labels: list[str] = []
    joins: dict[
        str, str
    ] = {}  # where the threads meet again that a barrier register brings together
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels.append(label[1])
            continue
        parts = _SASS.match(line)
        if parts is None:
            continue
        guard, opcode, operands = parts[1], parts[2], parts[3].strip()
        flow: Flow = "next"
        target = None
        named = _SASS_TARGET.match(operands)
        root = opcode.partition(".")[0]
        if root == "BSSY" and named is not None:
            joins[named[1]] = named[2]
        elif root == "BRA" and named is not None:
            # `BRA.U UP0, label` and `BRA.DIV UR4, label` depend on what stands before the label.
            flow, target = ("branch" if guard or named[1] else "jump"), named[2]
        elif root == "BSYNC" and operands in joins:
            flow, target = ("branch" if guard else "jump"), joins[operands]
        elif root in ("EXIT", "RET", "KILL") and guard is None:
            flow = "end"
        found.append(Instruction(opcode, operands, flow, target, tuple(labels)))
        labels = []
    return found


def amdgcn(text: str) -> list[Instruction]:
    """Read the assembly LLVM prints of one kernel; directives are passed over."""
    found: list[Instruction] = []
    labels: list[str] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels.append(label[1])
            continue
        parts = _AMD.match(line)
        if parts is None:
            continue
        opcode, operands = parts[1], parts[2].strip()
        flow: Flow = "next"
        target = None
        if opcode.startswith("s_cbranch"):
            flow, target = "branch", operands
        elif opcode == "s_branch":
            flow, target = "jump", operands
        elif opcode in ("s_endpgm", "s_setpc_b64"):
            flow = "end"
        found.append(Instruction(opcode, operands, flow, target, tuple(labels)))
        labels = []
    return found


def code(instructions: Sequence[Instruction]) -> Code:
    """Count what a kernel does, as a whole and in each innermost loop.

    A loop that does nothing but wait (for a barrier, or past the end of the kernel) is none.

    Args:
        instructions: The instructions, the first one that of the kernel's entry.
    """
    if not instructions:
        return Code(_work([]), ())
    reached, loops = _loops(instructions)
    busy = [body for body in loops if any(not _waits(instructions[at]) for at in body)]
    inner = [body for body in busy if not any(other < body for other in busy)]
    return Code(
        _work([instructions[at] for at in sorted(reached)]),
        tuple(_work([instructions[at] for at in sorted(body)]) for body in sorted(inner, key=min)),
    )


_WAITING = re.compile(
    r"(BRA|DEPBAR|MOV|NANOSLEEP|NOP|SYNCS|UMOV|UTCATOMSWS|YIELD|s_branch|s_nop|s_sleep)\b"
)


def _waits(instruction: Instruction) -> bool:
    """Tell whether an instruction is of a loop that waits: a wait, a branch, or a copy."""
    is_copy = instruction.opcode.startswith("IMAD") and "RZ, RZ, " in instruction.operands
    return is_copy or _WAITING.match(instruction.opcode) is not None


def _loops(instructions: Sequence[Instruction]) -> tuple[frozenset[int], list[frozenset[int]]]:
    """Return the instructions that can be reached, and the natural loops, as places in the text."""
    following = successors(instructions)
    order = _reverse_postorder(following)
    place = {node: at for at, node in enumerate(order)}
    predecessors: dict[int, list[int]] = {node: [] for node in order}
    for node in order:
        for after in following[node]:
            predecessors[after].append(node)
    above = _dominators(order, place, predecessors)
    bodies: dict[int, set[int]] = {}
    for node in order:
        for header in following[node]:
            if _dominates(header, node, above, place):
                body = bodies.setdefault(header, {header})
                _gather(body, node, predecessors)
    return frozenset(order), [frozenset(body) for body in bodies.values()]


def successors(instructions: Sequence[Instruction]) -> list[list[int]]:
    """Return what may be done after each instruction, as places in the text."""
    where = {label: at for at, each in enumerate(instructions) for label in each.labels}
    found: list[list[int]] = []
    for at, each in enumerate(instructions):
        after = []
        if each.flow in ("next", "branch") and at + 1 < len(instructions):
            after.append(at + 1)
        if each.target is not None and each.target in where:
            after.append(where[each.target])
        found.append(after)
    return found


def _reverse_postorder(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes reached from the first, each before those it leads to, loops aside."""
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(successors[0]))]
    while stack:
        node, rest = stack[-1]
        for after in rest:
            if after not in seen:
                seen.add(after)
                stack.append((after, iter(successors[after])))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def _dominators(
    order: Sequence[int], place: Mapping[int, int], predecessors: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Return the immediate dominator of each node; that of the first is itself.

    Cooper, Harvey and Kennedy, *A Simple, Fast Dominance Algorithm*, 2001.
    """
    above = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [before for before in predecessors[node] if before in above]
            nearest = known[0]
            for other in known[1:]:
                nearest = _meeting(nearest, other, above, place)
            if above.get(node) != nearest:
                above[node] = nearest
                changed = True
    return above


def _meeting(one: int, other: int, above: Mapping[int, int], place: Mapping[int, int]) -> int:
    """Return the nearest node that dominates both."""
    while one != other:
        if place[one] > place[other]:
            one = above[one]
        else:
            other = above[other]
    return one


def _dominates(header: int, node: int, above: Mapping[int, int], place: Mapping[int, int]) -> bool:
    while place[node] > place[header]:
        node = above[node]
    return node == header


def _gather(body: set[int], last: int, predecessors: Mapping[int, Sequence[int]]) -> None:
    """Add to a loop what leads to its last instruction; the header is in it already."""
    stack = [last]
    while stack:
        node = stack.pop()
        if node not in body:
            body.add(node)
            stack.extend(predecessors[node])


def _work(instructions: Sequence[Instruction]) -> Work:
    matrix = Counter(each.opcode for each in instructions if matrix_kind(each.opcode))
    return Work(
        matrix=dict(sorted(matrix.items())),
        exp2=_count(instructions, r"MUFU\.EX2|v_exp_"),
        divisions=_count(instructions, r"MUFU\.RCP|v_rcp_"),
        spill_stores=_count(instructions, r"STL\b|scratch_store"),
        spill_loads=_count(instructions, r"LDL\b|scratch_load"),
        waits=sum(_allowed(each) == 0 for each in instructions),
        exp2_in_flight=_in_flight(instructions),
        instructions=len(instructions),
    )


def _count(instructions: Iterable[Instruction], pattern: str) -> int:
    compiled = re.compile(pattern)
    return sum(compiled.match(each.opcode) is not None for each in instructions)


def _allowed(instruction: Instruction) -> int | None:
    """Return how many groups of wgmma may still run after a wait; None if it waits for none."""
    if not instruction.opcode.startswith("WARPGROUP.DEPBAR"):
        return None
    return int(instruction.operands.rpartition(",")[2].strip(), 0)


def _in_flight(instructions: Sequence[Instruction]) -> int:
    """Count the exponentials that run while a wgmma does.

    An instruction with `gsb0` closes a group; `DEPBAR.LE gsb0, n` waits until at most n groups run.
    What is issued at the end of a loop is waited for in the next iteration, so the text is gone
    through twice and counted the second time.
    """
    groups = 0
    is_open = False
    found = 0
    for again in (False, True):
        for each in instructions:
            if matrix_kind(each.opcode) == "wgmma":
                is_open = "gsb0" not in each.operands
                groups += not is_open
            elif (allowed := _allowed(each)) is not None:
                groups = min(groups, allowed)
            elif again and each.opcode.startswith("MUFU.EX2"):
                found += groups > 0 or is_open
    return found
