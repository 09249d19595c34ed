"""Short ways for tests to look at a step: its text, its numbers, its refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from looptrans.executor import RaceLog, execute, execute_on, prepare
from looptrans.frontend import load, parse
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.step import Step
from looptrans.ir.walk import is_parallel
from looptrans.transforms.editing.errors import TransformError

SPECS = Path(__file__).parent.parent / "specs"
SCHEDULES = range(5)


def read(text: str) -> Program:
    return parse(Source("t.py", dedent(text)))


def spec(name: str) -> Program:
    return load(str(SPECS / f"{name}.py"))


def code(step: Step) -> str:
    """The listing after a step: what stands below the signature, without comments."""
    text = listing(step.after)
    assert parse(Source("<after>", text)) == step.after, "the listing does not read back"
    body = text.split('"""')[-1] if '"""' in text else text.partition("\n")[2]
    lines = [line.partition("  # ")[0] for line in body.strip("\n").split("\n")]
    return dedent("\n".join(line for line in lines if line.strip()[:1] not in ("", "#")))


def lines(text: str) -> str:
    return dedent(text).strip("\n")


def sizes_of(program: Program, *extents: int) -> list[dict[str, int]]:
    """All sizes at each of these extents, and all of them different."""
    names = [p.name for p in program.parameters if p.is_integer]
    same = [dict.fromkeys(names, extent) for extent in extents]
    return [*same, {name: 2 + number for number, name in enumerate(names)}]


def agrees(step: Step, sizes: Iterable[Mapping[str, int]] | None = None) -> bool:
    """A legal step has the numbers of what it came from, however parallel loops are shuffled.

    Bit for bit, unless a certificate says that sums may be reordered.
    """
    assert step.verdict.decision == "legal", (step.verdict, listing(step.after))
    exact = all(certificate.kind != "rounding" for certificate in step.verdict.certificates)
    runs = 0
    for number, chosen in enumerate(sizes or sizes_of(step.before, 0, 1, 2, 5)):
        inputs = prepare(step.before, chosen, seed=number)
        expected = execute_on(step.before, inputs)
        for schedule in (None, *(SCHEDULES if is_parallel(step.after) else ())):
            races = RaceLog()
            actual = execute_on(step.after, inputs, schedule=schedule, races=races)
            assert not races.races
            assert list(actual) == list(expected)
            for name, values in expected.items():
                if exact:
                    np.testing.assert_array_equal(actual[name], values)
                else:
                    np.testing.assert_allclose(actual[name], values, rtol=1e-9, atol=1e-12)
            runs += 1
    return runs > 0


def computes(
    program: Program,
    reference: Callable[..., Mapping[str, Any]],
    sizes: Mapping[str, int],
) -> bool:
    """A program gives what the mathematics says, in every one of some executions."""
    inputs = prepare(program, sizes)
    expected = reference(**inputs.arrays)
    for schedule in (None, *SCHEDULES):
        for name, values in execute(
            program, sizes=sizes, inputs=inputs.arrays, schedule=schedule
        ).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-12, atol=1e-14)
    return True


def refusal(function: Callable[..., Step], program: Program, *arguments: Any) -> str:
    """What a person is told when a transformation cannot be made; without the place."""
    with pytest.raises(TransformError) as caught:
        function(program, *arguments)
    mistake = caught.value
    assert mistake.remedy, "an error without a remedy"
    lines = mistake.render(program.source).split("\n")
    return "\n".join(
        line for line in lines if " | " not in line and set(line.strip()) not in ({"^"}, set())
    )
