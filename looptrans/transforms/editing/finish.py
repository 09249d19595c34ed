"""After an edit: the form the frontend would give the printed listing.

The statements of a program keep their labels through every step, and its printed listing parses
back to an equal program.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.frontend.appearance import names_at, names_in
from looptrans.frontend.comments import label_of
from looptrans.frontend.labels import Labels
from looptrans.ir.index import parameters as sizes_of
from looptrans.ir.program import Assign, If, Node, Parameter, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.source import Span
from looptrans.ir.step import Image, Images
from looptrans.ir.walk import assignments, nodes
from looptrans.transforms.editing.errors import NameInUse
from looptrans.transforms.editing.named_numbers import with_names_known, with_names_that_hold
from looptrans.transforms.editing.naming import names_used
from looptrans.transforms.editing.tree import loop_paths


def finished(program: Program, images: Images) -> tuple[Program, dict[str, Image]]:
    """Bring an edited program into the form the frontend gives its printed listing.

    - Labels: where the listing would otherwise give a statement another label than it has, all
      labels are written into the comments. Data-dependent conditions have no comments, and get the
      labels that the listing will give them.
    - Integer scalars in bounds and guards that no longer hold what is meant there are written out.
    - Arrays and parameters are put in order of first appearance; what is no longer mentioned goes.

    Args:
        program: The program after the edit.
        images: Its instance map, by the labels it has now.

    Returns:
        The program, and the instance map by the labels it has then.

    Raises:
        NameInUse: The program now needs `min` or `max`, and uses the name for something else.
    """
    guards = _guard_labels(program)
    body = rewritten(program.body, lambda node: (_with_guard_label(node, guards),))
    if not _labels_agree(body):
        body = rewritten(body, lambda node: (with_stated_label(node),))
    program = with_names_that_hold(replace(program, body=body))
    found = _in_order(_with_sizes_stated(program))
    _require_language(found)
    return found, {guards.get(label, label): image for label, image in images.items()}


def legible(program: Program) -> Program:
    """Return a finished program that is legal with no name in it that its listing cannot explain.

    Args:
        program: The program.
    """
    known = with_names_known(program)
    return program if known is program else _in_order(known)


def _stated(body: tuple[Node, ...]) -> Labels:
    labels = (label_of(n.comment) for n in assignments(body))
    return Labels({label for label in labels if label is not None})


def _guard_labels(program: Program) -> dict[str, str]:
    """Return the label that each data-dependent condition will have when the text is read."""
    labels = _stated(program.body)
    return {
        node.label: labels.fresh("G")
        for node in nodes(program.body)
        if isinstance(node, If) and node.label is not None
    }


def _with_guard_label(node: Node, labels: dict[str, str]) -> Node:
    if isinstance(node, If) and node.label is not None:
        return replace(node, label=labels[node.label])
    return node


def _labels_agree(body: tuple[Node, ...]) -> bool:
    """Tell whether reading the printed text gives every statement the label it has."""
    labels = _stated(body)
    return all(
        node.label == (label_of(node.comment) or labels.fresh("S")) for node in assignments(body)
    )


def with_stated_label(node: Node) -> Node:
    """Return a statement whose comment says its label."""
    if not isinstance(node, Assign) or label_of(node.comment) == node.label:
        return node
    comment = f"{node.label}: {node.comment}" if node.comment else node.label
    return replace(node, comment=comment, labelled=True)


def _with_sizes_stated(program: Program) -> Program:
    """Make arguments of the sizes that guards alone mention: a free name means a size in a bound.

    A size that a bound or a subscript mentions, or the shape of an argument, is known from there.
    """
    if not program.is_function:
        return program
    guarded: set[str] = set()
    known = set(program.arguments)
    for node in nodes(program.body):
        if isinstance(node, If):
            guarded |= names_at(node)
        else:
            known |= names_at(node)
    for array in program.arrays:
        extents = [*array.shape, *(array.value_range or ())]
        known |= {n for extent in extents if extent is not None for n in sizes_of(extent)}
    lost = [
        replace(each, annotation="int")
        for each in program.parameters
        if each.kind == "size" and "." not in each.name and each.name in guarded - known
    ]
    stated = {each.name: each for each in lost}
    return replace(
        program,
        arguments=(*program.arguments, *stated),
        parameters=tuple(stated.get(each.name, each) for each in program.parameters),
    )


def _in_order(program: Program) -> Program:
    """Put parameters and arrays into the order of first appearance, as the frontend does."""
    mentioned = list(names_in(program.contracts, program.body))
    arrays = {array.name: array for array in program.arrays}
    parameters = {parameter.name: parameter for parameter in program.parameters}
    appearing = dict.fromkeys([*program.arguments, *mentioned, *program.outputs])
    kept = tuple(arrays[name] for name in appearing if name in arrays)
    stated = set(program.arguments)
    for array in kept:
        if array.name in program.arguments:
            extents = [*array.shape, *(array.value_range or ())]
            stated |= {n for extent in extents if extent is not None for n in sizes_of(extent)}
    rank = {name: number for number, name in enumerate(mentioned)}

    def order(parameter: Parameter) -> int:
        # `A.shape[0]` is a parameter from where it is first read on, not from the signature on.
        return rank.get(parameter.name, -1) if ".shape[" in parameter.name else -1

    first = [p.name for p in sorted(program.parameters, key=order) if p.name in stated]
    names = dict.fromkeys([*first, *mentioned])
    ordered = tuple(parameters[name] for name in names if name in parameters)
    return replace(program, arrays=kept, parameters=ordered)


def _require_language(program: Program) -> None:
    """Require that functions the program needs are not also names of it."""
    used = names_used(program)
    for mention in names_in(program.contracts, program.body):
        name = mention.removesuffix("(")
        if mention.endswith("(") and name in used:
            raise NameInUse(
                f"the transformed program needs the language's {name}, and {name} is a name of "
                "the listing",
                _place_of(program, name),
                why="one name cannot mean both",
                remedy=f"rename the one of the listing, e.g. {name}_",
            )


def _place_of(program: Program, name: str) -> Span | None:
    places = {path.variable: path.loop.span for path in loop_paths(program)}
    places |= {parameter.name: parameter.span for parameter in program.parameters}
    places |= {array.name: array.span for array in program.arrays}
    return places.get(name)
