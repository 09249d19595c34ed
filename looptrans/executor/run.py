"""The meaning of a Program: run it statement by statement, in the order of the listing.

Parallel loops run in order too (the sequential reading), or shuffled by a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from looptrans.executor.closures import Machine
from looptrans.executor.control import compile_body
from looptrans.executor.errors import InputMismatch, NoValue, Trap
from looptrans.executor.inputs import Inputs, prepare
from looptrans.executor.log import AccessLog
from looptrans.executor.private import PrivateStore, private_loops
from looptrans.executor.races import RaceLog, Watch
from looptrans.executor.storage import Store, as_array, cells_of, converter
from looptrans.executor.tasks import run_interleaved
from looptrans.ir.program import Program
from looptrans.ir.walk import is_parallel, live_out

DTYPES: dict[str, type[Any]] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
}


def execute(
    program: Program,
    *,
    sizes: Mapping[str, float] | None = None,
    inputs: Mapping[str, ArrayLike] | None = None,
    dtype: str = "float64",
    log: AccessLog | None = None,
    seed: int = 0,
    schedule: int | None = None,
    races: RaceLog | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a listing with scalar operations, sums and `@` from left to right.

    What is not given is made up, see `looptrans.executor.inputs.prepare`. The caller's arrays stay
    as they are.

    Args:
        program: The listing.
        sizes: Values of its sizes; real parameters may stand here too.
        inputs: Values of its arrays, and of parameters.
        dtype: The type of every floating-point number: float64, float32 or float16.
        log: Where accesses are recorded, if anywhere.
        seed: Decides the random inputs.
        schedule: None for the sequential reading: every loop in order, a loop with barriers as one
            loop for each phase, every update at once. A number for an execution in which the
            iterations of parallel loops are interleaved, statement by statement, as it decides;
            atomic updates come in any order and reducing blocks combine in any tree. The same
            number gives the same execution. Without parallel loops there is only one.
        races: Where the races are added that the run shows, whatever its order was; also when the
            run fails.

    Returns:
        The returned names in their order, then the inputs that were written; a scalar is an array
        without dimensions.

    Raises:
        ExecutionError: The inputs do not fit, a contract does not hold, or a statement fails.
    """
    made = prepare(program, sizes, inputs, seed)
    return execute_on(program, made, dtype=dtype, log=log, schedule=schedule, races=races)


def execute_on(
    program: Program,
    inputs: Inputs,
    *,
    dtype: str = "float64",
    log: AccessLog | None = None,
    schedule: int | None = None,
    races: RaceLog | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a listing on complete inputs; see `execute`.

    Raises:
        ExecutionError: A statement fails.
    """
    if dtype not in DTYPES:
        raise InputMismatch(
            f"there is no type {dtype!r} to compute in", None, remedy=f"use {', '.join(DTYPES)}"
        )
    real = DTYPES[dtype]
    with np.errstate(all="ignore"):
        stores = _stores(program, inputs, real)
        machine = Machine(
            real=real,
            integers=inputs.integers,
            reals={name: real(value) for name, value in inputs.reals.items()},
            stores=stores,
            log=log,
            watch=None if races is None else Watch(program),
        )
        try:
            if schedule is None or not is_parallel(program):
                compile_body(machine, program.body)()
            else:
                run_interleaved(machine, program, schedule)
        except RecursionError:
            raise NoValue("an expression is nested too deeply to run", None) from None
        finally:
            if races is not None and machine.watch is not None:
                machine.watch.report(races)
        return {name: _output(program, stores[name], name, real) for name in output_names(program)}


def output_names(program: Program) -> tuple[str, ...]:
    """Return the names returned, in their order, then the inputs that are written."""
    return tuple(dict.fromkeys((*program.outputs, *live_out(program))))


def _stores(program: Program, inputs: Inputs, real: type[Any]) -> dict[str, Store]:
    stores: dict[str, Store] = {}
    private = private_loops(program)
    for array in program.arrays:
        store = Store(array.name, converter(array.element, real), array.role == "local")
        if array.role == "input":
            values = inputs.arrays[array.name]
            store.shape, store.data = values.shape, cells_of(values, array.element, real)
        if array.name in private:
            store = PrivateStore(store, private[array.name])
        stores[array.name] = store
    return stores


def _output(program: Program, store: Store, name: str, real: type[Any]) -> np.ndarray[Any, Any]:
    array = program.array(name)
    try:
        return as_array(store, array, real)
    except Trap as trap:
        raise trap.kind(
            f"the output {name!r} is never set" if store.shape is None else trap.message,
            array.span,
            remedy=trap.remedy,
        ) from None
