"""Backpropagation through time: the backward pass of a listing whose recurrences were opened.

    dh_before[t] = a[t] * dh[t + 1]       ->      for t downwards: dh[t] = a[t] * dh[t + 1] + …

What comes in for an array that iterations hand on is what comes back to it. Arrays handed over in
place of what was open, nests ordered by `in_time`.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.carried.in_time import in_time
from looptrans.adjoint.carried.recurrences import Opened, Tied, again
from looptrans.adjoint.derived import Backward, Saved
from looptrans.adjoint.proofs import Step
from looptrans.adjoint.saving import precise
from looptrans.adjoint.written.printing import shape_text
from looptrans.ir.creation import in_32_bits
from looptrans.ir.program import Array, Declaration, Node, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.value import Access
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import touched
from looptrans.transforms.editing.naming import fresh_name


def closed(found: Backward, seen: Opened, of: tuple[str, ...]) -> Backward:
    """Return the backward pass of a listing, from that of the one whose recurrences are open.

    Args:
        found: The backward pass of the open one.
        seen: Both listings.
        of: The outputs of the listing that receive a gradient.

    Raises:
        NotDifferentiated: No order is found in which everything is set before it is read.
    """
    found = _apart(found, seen)
    gradients = {a: found.gradients[before] for a, before in seen.before.items()}
    incoming = {a: found.incoming[a] for a in seen.before}
    tied = Tied(seen, gradients, incoming, frozenset(of))
    made = tuple(n for n in found.program.body if isinstance(n, Declaration))
    nests = tuple(n for n in found.program.body if not isinstance(n, Declaration))
    ordered = in_time(nests, tied, replace(found.program, body=made))
    taken = touched(tuple(ordered))
    handed = tuple(a for a in seen.before if a in taken)
    known = {each.name for each in found.saved}
    saved = tuple(
        replace(each, is_output=each.name in seen.listing.outputs)
        for each in found.saved
        if each.name not in seen.before or each.name in taken
    )
    saved += tuple(Saved(a, a in seen.listing.outputs) for a in handed if a not in known)
    forward = _forward(found, seen, saved)
    dropped = {
        *seen.before.values(),
        *(set(seen.before) - set(handed)),
        *(incoming[a] for a in incoming if a not in of),
    }
    program = _with_arguments(found.program, forward, handed, dropped)
    program = replace(
        program,
        body=(*precise(made, gradients.values()), *ordered),
        outputs=tuple(o for o in found.program.outputs if o not in gradients.values()),
    )
    program = again(program)
    first = Step("open the recurrences", (seen.certificate,))
    received = " and ".join(sorted(gradients.values()))
    law = f"what comes in for {' and '.join(sorted(gradients))} is {received}"
    shown = Certificate(
        "order", law, "legal", "each element is set before it is read, by the dependences"
    )
    return replace(
        found,
        listing=seen.listing,
        of=of,
        program=program,
        gradients={n: g for n, g in found.gradients.items() if n not in seen.before.values()},
        incoming={n: g for n, g in found.incoming.items() if n in of},
        saved=saved,
        forward=forward,
        steps=(first, *found.steps, Step("close the recurrences", (shown,))),
        before=found.before + 1,
        recomputed=found.recomputed - set(gradients.values()),
    )


def _apart(found: Backward, seen: Opened) -> Backward:
    """Return an open backward pass that works out nothing under the name of what is carried."""
    program = found.program
    given = {*program.arguments, *program.outputs}
    new: dict[str, str] = {}
    for name in seen.before:
        if name not in given and any(a.name == name for a in program.arrays):
            new[name] = fresh_name(program, name, (*new.values(), *seen.before))

    def named(names: frozenset[str]) -> frozenset[str]:
        return frozenset(new.get(name, name) for name in names)

    def one(access: Access) -> Access:
        return Access(new.get(access.array, access.array), access.subscripts)

    def declared(node: Node) -> Node:
        return (
            replace(node, array=new.get(node.array, node.array))
            if isinstance(node, Declaration)
            else node
        )

    program = replace(
        program,
        body=tuple(map(declared, with_accesses(program.body, one))),
        arrays=tuple(replace(a, name=new.get(a.name, a.name)) for a in program.arrays),
    )
    recomputed, weights = named(found.recomputed), named(found.weights)
    return replace(found, program=program, recomputed=recomputed, weights=weights)


def _forward(found: Backward, seen: Opened, saved: tuple[Saved, ...]) -> Program:
    """Return the listing that hands over what is saved."""
    more = tuple(each.name for each in saved if each.name not in seen.listing.outputs)
    if not more:
        return seen.listing
    source = found.forward if found.forward is not found.listing else seen.program
    whole = {before: a for a, before in seen.before.items()}

    def one(access: Access) -> Access:
        return Access(whole.get(access.array, access.array), access.subscripts)

    handed = [a for a in seen.before if a in more]
    body = precise(with_accesses(source.body, one), handed)
    program = replace(
        source,
        body=body,
        arguments=tuple(a for a in source.arguments if a not in whole),
        arrays=tuple(a for a in source.arrays if a.name not in whole),
        outputs=(*seen.listing.outputs, *more),
    )
    return again(program)


def _with_arguments(
    program: Program, forward: Program, handed: tuple[str, ...], dropped: set[str]
) -> Program:
    """Return a backward listing with other arguments: arrays handed over, and without some."""
    arrays = tuple(a for a in program.arrays if a.name not in dropped)
    arguments = [a for a in program.arguments if a not in dropped]
    precise = in_32_bits(forward)
    for name in handed:
        own = forward.array(name)
        shape = own.extents
        kind = "Float32" if name in precise else "Float"
        annotation = f'{kind}[Array, "{shape_text(shape)}"]'
        given = Array(name, own.rank, "float", "input", own.shape, annotation=annotation)
        arrays = (*(a for a in arrays if a.name != name), given)
        if name in arguments:
            continue
        # What is saved stands behind the arguments of the listing, before what comes in.
        place = max(
            (n + 1 for n, a in enumerate(arguments) if a in forward.arguments),
            default=len(arguments),
        )
        arguments.insert(place, name)
    return replace(program, arrays=arrays, arguments=tuple(arguments))
