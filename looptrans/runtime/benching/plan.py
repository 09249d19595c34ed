"""What will be timed: kernels made ready, sizes, and what a listing is found to compute."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias

from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.emit.backward import Form, emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.executor.errors import ExecutionError
from looptrans.ir.program import Program
from looptrans.runtime.benching.flops import products_of
from looptrans.runtime.benching.others import Other, others
from looptrans.runtime.benching.recipe import Recipe
from looptrans.runtime.benching.results import Alike, Case, Pass, Product, Row
from looptrans.runtime.benching.search import recipe_of
from looptrans.runtime.benching.sizes import filled, integers_of, shapes_of, usual_sets
from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.running.cache import keep
from looptrans.runtime.running.load import load_module

SizeValues: TypeAlias = Mapping[str, float]

OURS = "looptrans"


@dataclass(frozen=True, slots=True)
class Subject:
    """A listing made ready to be timed.

    Attributes:
        program: The listing.
        forward: Its kernels.
        backward: Those of its backward pass; None where that is not timed.
        modules: The modules with their kernels.
        launcher: The function that is called for the forward pass.
        differentiable: The one that is called for the backward pass.
        gradients: The arguments that have gradients.
        of: The outputs that receive one.
        refused: Why there is no backward pass, where one was asked for.
    """

    program: Program
    forward: BlockProgram
    backward: BlockProgram | None
    modules: tuple[ModuleType, ...]
    launcher: Callable[..., Any]
    differentiable: Callable[..., Any] | None
    gradients: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    refused: str = ""


def subject_of(
    program: Program,
    passes: Sequence[Pass],
    of: tuple[str, ...] | None = None,
    form: Form = "kernels",
    *,
    load: bool = True,
) -> Subject:
    """Emit the kernels of a listing and import them.

    Args:
        program: The listing.
        passes: Which passes will be timed.
        of: The outputs that receive a gradient; by default all that need no arg-max.
        form: How the kernels of the backward pass share the work.
        load: Whether they are imported; else nothing can be run.

    Raises:
        Refused: There are no kernels of the forward pass, or none of the only pass asked for.
    """
    made = emitted(program)
    modules = [_loaded(made.launcher, made.text)] if load else []
    own = Subject(
        program,
        made.blocks,
        None,
        tuple(modules),
        getattr(modules[0], made.launcher) if load else _not_loaded,
        None,
    )
    if "backward" not in passes:
        return own
    try:
        both = emitted_with_backward(program, of, form)
    except Refused as refusal:
        if "forward" not in passes:
            raise
        return replace(own, refused=str(refusal))
    if load:
        modules.append(_loaded(both.launcher, both.text))
    return replace(
        own,
        backward=both.backward,
        modules=tuple(modules),
        differentiable=getattr(modules[1], both.launcher) if load else _not_loaded,
        gradients=tuple(both.found.gradients),
        of=both.found.of,
    )


def _not_loaded(*_: object) -> None:
    raise AssertionError("these kernels were not imported")


def _loaded(launcher: str, text: str) -> ModuleType:
    key = hashlib.sha256(text.encode()).hexdigest()
    return load_module(f"looptrans_emitted_{key}", text, keep(key, launcher, text).path)


@dataclass(frozen=True, slots=True)
class Plan:
    """A listing at one set of sizes: what will be timed.

    Attributes:
        subject: The listing.
        sizes: All its sizes.
        reals: All its real parameters.
        recipe: What it computes as softmax attention, or why it is none.
        problem: Why nothing can be run at these sizes; empty where it can.
    """

    subject: Subject
    sizes: Mapping[str, int]
    reals: Mapping[str, float]
    recipe: Recipe | str
    problem: str = ""

    @property
    def shown(self) -> SizeValues:
        """Sizes and real parameters together."""
        return {**self.sizes, **self.reals}

    @property
    def alike(self) -> Alike:
        """What else could be called, for the report."""
        name = self.subject.program.name
        if isinstance(self.recipe, str):
            return Alike(name, reason=self.recipe)
        return Alike(name, found=str(self.recipe))

    def passes(self, asked: Sequence[Pass]) -> tuple[Pass, ...]:
        """Return those of the passes asked for that have kernels."""
        return tuple(p for p in asked if p == "forward" or self.subject.backward is not None)


def planned(subject: Subject, sets: Sequence[SizeValues] | None) -> tuple[Plan, ...]:
    """Find out at what sizes a listing will be timed, and beside what.

    Args:
        subject: The listing.
        sets: Sizes and real parameters, each set completed; by default what is usual.

    Raises:
        ExecutionError: What is given does not fit the listing.
    """
    program = subject.program
    reference = reference_of(program)
    found: list[Plan] = []
    for given in sets if sets is not None else usual_sets(program, subject.forward):
        sizes, reals = filled(program, subject.forward, given)
        problem = ""
        try:
            shapes_of(program, sizes)
            integers_of(program, sizes, 0)
        except ExecutionError as error:
            problem = error.message
        found.append(Plan(subject, sizes, reals, recipe_of(reference, sizes, reals), problem))
    return tuple(found)


def products(plan: Plan, direction: Pass, seed: int) -> tuple[Product, ...]:
    """Return the matrix products of one pass."""
    blocks = plan.subject.forward if direction == "forward" else plan.subject.backward
    assert blocks is not None
    integers = integers_of(plan.subject.program, plan.sizes, seed)
    return products_of(blocks, plan.sizes, integers)


def foreseen(plans: Sequence[Plan], passes: Sequence[Pass], seed: int = 0) -> tuple[Case, ...]:
    """Return what `timed` would run, without times; nothing of it needs a GPU."""
    cases = []
    for plan in plans:
        rows = [Row(OURS, "emitted", reason=plan.problem)]
        if isinstance(plan.recipe, Recipe) and not plan.problem:
            rows += [_offered(other, plan.recipe) for other in others(compiles=False)]
        for direction in plan.passes(passes):
            work = () if plan.problem else products(plan, direction, seed)
            name = plan.subject.program.name
            cases.append(Case(name, direction, plan.shown, work, 0, tuple(rows)))
    return tuple(cases)


def _offered(other: Other, recipe: Recipe) -> Row:
    return Row(other.name, "other", reason=other.refusal(recipe))
