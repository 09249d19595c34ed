"""Which old values matter, of cells that only the running program decides to write.

    if x[i] > 0.0:
        t = x[i]             t keeps its old value where the condition fails; B[i] does not get it
        B[i] = t

A write that may not happen has the old value of its cell as one more operand. Where it is left as
it was, it matters to those that read it then: not to what stands under the same guard, nor to what
comes after a guard both of whose branches write the cell.
"""

from __future__ import annotations

from collections.abc import Iterable

from looptrans.analysis.dependence.sources import Operand, Sources
from looptrans.analysis.isl_model.model import AccessModel
from looptrans.analysis.opaque_terms.killing import killers


def unobserved(sources: Sources, ends: Iterable[str]) -> frozenset[str]:
    """Return the names of the old values that nothing gets to see.

    Args:
        sources: The operands of a program, and where their values come from.
        ends: The arrays that can be seen at the end.
    """
    left = {operand.name for operand in sources.operands if operand.is_old}
    arrays = {operand.array for operand in sources.operands if operand.is_old}
    seeing = [o for o in sources.operands if not o.is_old and o.array in arrays]
    seeing += [sources.at_end(array) for array in ends if array in arrays]
    while seeing and left:
        reader = seeing.pop()
        # An old value is seen just where its statement is not executed, whatever stands before it.
        executed = () if reader.is_old else _executed(sources, reader)
        for name in sources.flow(reader):
            kept = sources.kept_by(name)
            if kept is None or kept.name not in left:
                continue
            if not any(sources.access(kept) is write for write in executed):
                left.remove(kept.name)
                seeing.append(kept)
    return frozenset(left)


def _executed(sources: Sources, reader: Operand) -> tuple[AccessModel, ...]:
    """Return writes of the cell of which one is executed before, in each iteration that reads."""
    if reader.statement is None:
        return ()
    writes = [a for a in sources.model.accesses if a.is_write and a.array == reader.array]
    return killers(sources.access(reader), writes)
