"""From a backward pass to the text of its module: forward, backward, and what joins them.

`NAME_forward(*arguments)` returns the outputs and then what is saved, as a tuple,
`NAME_backward(*arguments, wanted=None)` the gradients, as a tuple, and `NAME(*arguments)` the
outputs, differentiable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from looptrans.blocks.block_ir.program import BlockProgram, Reach, Rounding
from looptrans.blocks.scheduled.reach import below, reached
from looptrans.emit.autograd import DIGEST, Autograd, Called
from looptrans.emit.facts import Style
from looptrans.emit.header import backward_header
from looptrans.emit.identifiers import MODULE_WORDS, Scope, identifier, in_ascii
from looptrans.emit.launcher import Launcher
from looptrans.emit.listing import lowered
from looptrans.emit.module import Part, written
from looptrans.emit.notes import on_names
from looptrans.emit.refusal import NotInForm, Refused
from looptrans.emit.together import groups_of
from looptrans.ir.creation import in_16_bits
from looptrans.version import __version__

if TYPE_CHECKING:
    from looptrans.adjoint.derived import Backward
    from looptrans.ir.program import Program

Form: TypeAlias = Literal["kernels", "launch", "atomics"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True, slots=True)
class EmittedBackward:
    """A listing and its backward pass as a module of kernels.

    Attributes:
        name: What its file is called, without `.py`.
        launcher: The differentiable function.
        forward_launcher: The launcher that returns all that the backward pass needs.
        backward_launcher: The launcher of the gradients.
        text: The module.
        forward: What was printed for the forward pass.
        backward: What was printed for the backward pass.
        forward_kernels: What the module calls the kernels of the forward pass, in order.
        backward_kernels: What it calls those of the backward pass.
        found: The backward pass.
    """

    name: str
    launcher: str
    forward_launcher: str
    backward_launcher: str
    text: str
    forward: BlockProgram
    backward: BlockProgram
    forward_kernels: tuple[str, ...]
    backward_kernels: tuple[str, ...]
    found: Backward


def emitted_backward(found: Backward, form: Form = "kernels") -> EmittedBackward:
    """Return the module of a listing with its backward pass.

    Args:
        found: The backward pass.
        form: How its kernels share the work; see `looptrans.derivation.backward`.

    Raises:
        Refused: One of the two cannot be run in blocks.
    """
    program = found.program if form == "kernels" else _formed(found, form)
    declared = {s.name for s in found.saved} | set(found.incoming.values())
    exact = {a.name for a in found.program.arrays if a.name in declared and a.stated == "float32"}
    rounded = {a.name for a in found.listing.arrays if a.stated != "float32"}
    exact |= {gradient for name, gradient in found.gradients.items() if name not in rounded}
    kept = {s.name for s in found.saved if s.name not in found.listing.outputs}
    forward = _in_float32(lowered(found.forward), kept & exact)
    forward = _as_far_as(forward, found.listing)
    forward = replace(forward, notes=(*forward.notes, *on_names(found.listing)))
    rounding = Rounding(found.recomputed, found.weights, found.logarithms)
    backward = _in_float32(lowered(program, rounded=rounding, constant=True), exact)
    return _module(found, forward, backward, form)


def emitted_with_backward(
    program: Program, of: tuple[str, ...] | None = None, form: Form = "kernels"
) -> EmittedBackward:
    """Return the module of a listing with its backward pass.

    Args:
        program: The listing.
        of: The outputs that receive a gradient; by default all that need no arg-max.
        form: How its kernels share the work.

    Raises:
        Refused: It has no backward pass, or one of the two cannot be run in blocks.
    """
    from looptrans.adjoint.backward import backward
    from looptrans.adjoint.refusal import NotDifferentiated

    try:
        found = backward(program, of)
    except NotDifferentiated as error:
        raise Refused(error, program, program) from None
    return emitted_backward(found, form)


def _formed(found: Backward, form: Form) -> Program:
    """Return the backward listing in one of its forms.

    Raises:
        Refused: Its dependences do not allow it.
    """
    from looptrans.derivation.backward import derive_backward

    derivation = derive_backward(found.listing, found.of, tuple(found.gradients), form)
    if derivation.decision != "legal":
        ways = {way.form: way.reason for way in derivation.alternatives}
        reason = f"its backward pass has no form {form}: {ways.get(form, 'it is not shown right')}"
        raise Refused(NotInForm(reason), found.listing, found.program)
    return derivation.last


def _as_far_as(program: BlockProgram, listing: Program) -> BlockProgram:
    """Return a forward pass that goes as far into its arguments as the listing says.

    It may look into tables in place of arguments.
    """
    known = {array.name for array in listing.arrays}

    def both(one: Iterable[Reach], other: Iterable[Reach]) -> tuple[Reach, ...]:
        return tuple(dict.fromkeys(reach for reach in (*one, *other) if reach[0] in known))

    return replace(
        program,
        reached=both(reached(listing), program.reached),
        below=both(below(listing), program.below),
    )


def _in_float32(program: BlockProgram, names: Iterable[str]) -> BlockProgram:
    """Return a program whose arrays of these names are in float32, whatever the inputs are."""
    chosen = set(names)
    return replace(
        program,
        kernels=tuple(kernel.with_float32(chosen) for kernel in program.kernels),
        made=tuple(
            replace(made, dtype="float32", rounded=False) if made.array in chosen else made
            for made in program.made
        ),
    )


def _module(
    found: Backward, forward: BlockProgram, backward: BlockProgram, form: Form
) -> EmittedBackward:
    name = identifier(found.listing.name)
    scope = Scope(MODULE_WORDS)
    called, launchers = _called(found, name, scope)
    pairs: tuple[tuple[BlockProgram, Style, str], ...] = (
        (forward, "forward", f"Run {called.launcher}, and return what its gradients need besides."),
        (backward, "backward", f"Return the gradients of {called.launcher}."),
    )
    parts = []
    names: list[tuple[str, ...]] = []
    for (program, style, title), launcher in zip(pairs, launchers, strict=True):
        kernels = [
            scope.name("kernel", style, k.name, wanted=in_ascii(k.name)) for k in program.kernels
        ]
        names.append(tuple(kernels))
        shared = form == "launch" and style == "backward"
        typed = _typed(found) if style == "backward" else {}
        groups = groups_of(program.kernels) if shared else None
        parts.append(
            Part(
                program,
                launcher,
                kernels,
                scope,
                style=style,
                title=title,
                groups=groups,
                typed=typed,
            )
        )
    joined = Autograd(found, called, parts[0].facts, parts[1].facts)
    functions = [Launcher(part.facts).lines() for part in parts] + joined.functions()
    head = backward_header(found, forward, backward, __version__)
    text = written(head, parts, functions, joined.helpers)
    digest = hashlib.sha256(text.encode()).hexdigest()[: len(DIGEST)]
    for operator in called.operators:
        text = text.replace(f'"{operator}"', f'"{operator.removesuffix(DIGEST)}{digest}"')
    return EmittedBackward(
        f"{name}_backward",
        called.launcher,
        *launchers,
        text,
        forward,
        backward,
        names[0],
        names[1],
        found,
    )


def _typed(found: Backward) -> dict[str, str]:
    """Return what comes back that has 16 bits whatever the inputs have, and its type.

    That is what is saved of such arrays, and the incoming gradients of such outputs.
    """
    types = in_16_bits(found.listing)
    names = {name: name for name in (*found.listing.outputs, *(s.name for s in found.saved))}
    names |= {incoming: name for name, incoming in found.incoming.items()}
    return {name: own for name, output in names.items() if (own := types.get(output)) is not None}


def _called(found: Backward, name: str, scope: Scope) -> tuple[Called, tuple[str, str]]:
    """Return the names of the functions of a module, and those of its launchers."""
    launcher = scope.name("launcher", wanted=found.listing.name)
    launchers = (
        scope.name("launcher", "forward", wanted=f"{name}_forward"),
        scope.name("launcher", "backward", wanted=f"{name}_backward"),
    )
    own = [
        scope.name("function", each, wanted=f"_{name}_{each}")
        for each in ("forward_operator", "backward_operator", "keep", "gradients", "second")
    ]
    operators = (
        f"{in_ascii(name)}_forward_{DIGEST}",
        f"{in_ascii(name)}_backward_{DIGEST}",
    )
    return Called(launcher, own[0], own[1], own[2], own[3], own[4], operators), launchers
