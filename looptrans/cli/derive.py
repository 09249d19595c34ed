"""`looptrans derive`: from the listing as written to a nest that can be run fast."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from looptrans.cli.terminal import STATUS, refused, style
from looptrans.cli.verb import (
    FORMS,
    Verbs,
    add_format,
    add_listing,
    add_placement,
    add_verb,
    file_name,
    load_listing,
    names,
)

if TYPE_CHECKING:
    from looptrans.derivation.step import Derivation, Form
    from looptrans.ir.program import Program

GOALS = ("forward", "backward", "split")
# The options that only one goal has.
OWN = {
    "block": "forward",
    "parts": "split",
    "of": "backward",
    "wrt": "backward",
    "form": "backward",
}

DESCRIPTION = """\
Each step is named, shown as what it changes, and followed by what it leans on: order and storage
by the exact dependences, algebra by proof. forward makes passes one, guards the empty prefix, cuts
the loop into blocks and runs in parallel what is free; split gives partial results and their
joining; backward gives the nests that work out the gradients, what the forward hands over for
them, and the ways to run them. What cannot be done is said, with the reason."""
EXAMPLES = """
looptrans derive specs/attention_naive.py
looptrans derive specs/attention_naive.py --to split --parts 7
looptrans derive specs/attention_naive.py --to backward
looptrans derive specs/attention_causal.py --to backward --wrt Q,K,V --form atomics
looptrans derive specs/softmax.py --format md
looptrans derive specs/attention_naive.py -o derivation.json && looptrans recheck derivation.json
"""


def add_derive(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "derive",
        derive,
        summary="derive a nest that can be run fast, every step proved",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser)
    parser.add_argument(
        "--to",
        type=_goal,
        default="forward",
        metavar="{forward,backward,split}",
        help="one pass in blocks, the backward pass, or parts that are joined (default: forward)",
    )
    parser.add_argument(
        "--block", type=_size, metavar="SIZE", help="forward: iterations of a block (64)"
    )
    parser.add_argument(
        "--parts", type=_size, metavar="COUNT", help="split: parts that are joined (4)"
    )
    parser.add_argument(
        "--of",
        type=names,
        metavar="O,lse",
        help="backward: the outputs that receive a gradient (all that need no arg-max)",
    )
    parser.add_argument(
        "--wrt",
        type=names,
        metavar="Q,K",
        help="backward: the arguments whose gradients are wanted (all floats)",
    )
    parser.add_argument(
        "--form",
        choices=FORMS,
        help="backward: how nests that work out the same sums run: a launch each (kernels), one "
        "launch, or one nest with atomic updates (kernels)",
    )
    add_format(parser, "text", "json", "md")
    add_placement(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=file_name,
        metavar="OUT",
        help="save the derivation there, for recheck",
    )


def _goal(text: str) -> str:
    if text not in GOALS:
        raise argparse.ArgumentTypeError(f"{text!r} is not forward, backward or split")
    return text


def _size(text: str) -> int:
    try:
        size = int(text)
    except ValueError:
        size = 0
    if not 0 < size < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer above 0")
    return size


def derive(arguments: argparse.Namespace) -> int:
    """Print the derivation."""
    from looptrans.derivation.saved import saved
    from looptrans.reports import render_derivation

    program = load_listing(arguments)
    problem = _mistake(arguments, program)
    if problem:
        return refused(problem)
    found = _derived(arguments, program)
    if arguments.output is not None:
        from looptrans.cli.output import write_text

        write_text(arguments.output, saved(found))
    print(render_derivation(found, arguments.format, style()), end="")
    return STATUS[found.decision]


def _derived(arguments: argparse.Namespace, program: Program) -> Derivation:
    if arguments.to == "backward":
        from looptrans.derivation.backward import derive_backward

        form: Form = arguments.form or "kernels"
        return derive_backward(program, arguments.of, arguments.wrt, form)
    from looptrans.derivation.derive import BLOCK, PARTS
    from looptrans.derivation.derive import derive as derived

    return derived(
        program, arguments.to, block=arguments.block or BLOCK, parts=arguments.parts or PARTS
    )


def _mistake(arguments: argparse.Namespace, program: Program) -> str:
    """Say what is wrong with the arguments that not every goal has, and what to do."""
    for name, goal in OWN.items():
        if arguments.to != goal and getattr(arguments, name) is not None:
            if goal == "forward":
                return f"--{name} is about the forward pass: leave out --to {arguments.to}"
            what = "the backward pass" if goal == "backward" else "a split"
            return f"--{name} is about {what}: add --to {goal}"
    if arguments.to != "backward":
        return ""
    from looptrans.ir.outputs import outputs

    kinds = {output.name: output.gradient for output in outputs(program)}
    for name in arguments.of or ():
        if name not in kinds:
            return f"--of: {name} is no output of {program.name}; {_choice(list(kinds))}"
        if kinds[name] != "differentiable":
            why = "it holds integers" if kinds[name] == "integer" else "stop_gradient keeps it back"
            able = [each for each, kind in kinds.items() if kind == "differentiable"]
            return f"--of: {name} receives no gradient, since {why}; {_choice(able)}"
    floats = [a.name for a in program.arrays if a.role == "input" and a.element == "float"]
    floats += [p.name for p in program.parameters if p.kind == "real"]
    for name in arguments.wrt or ():
        if name not in floats:
            return f"--wrt: {name} is no argument of {program.name} with a gradient; " + _choice(
                floats
            )
    return ""


def _choice(names: list[str]) -> str:
    return f"name {', '.join(names)}" if names else "there is none"
