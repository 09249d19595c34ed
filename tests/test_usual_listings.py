"""Listings as people have them are read, print back equal, and mean what their text means."""

from __future__ import annotations

import ast
import inspect
import math
from typing import Any

import numpy as np
import pytest

from looptrans.executor import execute_on, prepare
from looptrans.executor.inputs import Inputs
from looptrans.executor.philox import uniform
from looptrans.frontend import parse
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from tests.usual_attention import ATTENTION
from tests.usual_loops import LOOPS

LISTINGS = LOOPS | ATTENTION
NAMES: dict[str, Any] = {
    **{f: getattr(np, f) for f in ("exp", "log", "sqrt", "tanh", "zeros", "full", "inf")},
    "np": np,
    "math": math,
    "uniform": uniform,
    "nn": type("nn", (), {"Module": object}),
}


def as_python(text: str, program: Program, made: Inputs) -> dict[str, Any]:
    """Runs the text itself, and returns what it returns and every array it was given."""
    tree = ast.parse(text)
    tree.body = [n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom))]
    arrays = {n: a.copy() if a.ndim else a[()] for n, a in made.arrays.items()}
    values: dict[str, Any] = {**made.integers, **made.reals, **arrays}
    scope = NAMES | values
    flags = annotations.compiler_flag
    with np.errstate(all="ignore"):
        exec(compile(tree, "<listing>", "exec", flags=flags, dont_inherit=True), scope)
        if not program.is_function:
            return {array.name: scope[array.name] for array in program.arrays}
        owner, _, method = program.name.rpartition(".")
        function = scope[method] if not owner else getattr(scope[owner], method)
        if owner:
            instance = object.__new__(scope[owner])
            for name, value in values.items():
                if name.startswith("self."):
                    setattr(instance, name.removeprefix("self."), value)
            function = getattr(instance, method)
        taken = inspect.signature(function).parameters
        result = function(**{name: values[name] for name in taken})
    returned = result if isinstance(result, tuple) else (result,)
    return arrays | dict(zip(program.outputs, returned, strict=False))


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_means_what_its_text_means(name: str) -> None:
    text, sizes = LISTINGS[name]
    program = parse(Source("listing.py", text))
    canonical = listing(program)
    assert parse(Source("listing.py", canonical)) == program
    assert listing(parse(Source("listing.py", canonical))) == canonical
    for seed in range(3):
        made = prepare(program, sizes, seed=seed)
        found = execute_on(program, made)
        expected = as_python(text, program, made)
        changed = {
            n: values
            for n, values in expected.items()
            if n in made.arrays and not np.array_equal(values, made.arrays[n], equal_nan=True)
        }
        assert found.keys() >= changed.keys()
        for output, values in found.items():
            np.testing.assert_array_equal(values, expected[output], err_msg=output)
