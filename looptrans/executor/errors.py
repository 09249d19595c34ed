"""What can go wrong while a listing runs: one class each, whose docstring `explain` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from looptrans.ir.diagnostic import Mistake
from looptrans.ir.source import Span


class ExecutionError(Mistake):
    """The listing cannot be run to its end on these inputs.

    The message names the statement, the iteration and the values that are in the way.
    """

    code: ClassVar[str] = "E030"
    title: ClassVar[str] = "cannot run"


class SubscriptOutside(ExecutionError):
    """A subscript is negative or not below the extent of its dimension.

    In a listing a subscript means itself: unlike in NumPy, -1 is not the last element. The message
    shows the iteration, the array and its shape. Guard the access, or change the loop's bounds.
    """

    code: ClassVar[str] = "E031"
    title: ClassVar[str] = "subscript outside the array"


class NotYetSet(ExecutionError):
    """An array or scalar is read, or returned, before anything has set it.

    This happens where the assignment above stands under a guard that did not hold, or in a loop
    without iterations. Set it before the loop. A private name, and each cell of a private array,
    has to be set by every iteration for itself.
    """

    code: ClassVar[str] = "E032"
    title: ClassVar[str] = "read before it is set"


class IndexDividedByZero(ExecutionError):
    """An index expression divides by zero.

    `//` and `%` of bounds, guards and subscripts need a divisor that is not 0. (A division of
    values by zero is no error; it gives inf or nan.)
    """

    code: ClassVar[str] = "E033"
    title: ClassVar[str] = "index expression divides by zero"


class ContractViolated(ExecutionError):
    """A contract of the listing does not hold for these sizes and inputs.

    What is proved about the listing leans on its contracts (`assert …`), so it is not run without
    them. The message shows the values for which the contract fails.
    """

    code: ClassVar[str] = "E034"
    title: ClassVar[str] = "contract violated"


class InputMismatch(ExecutionError):
    """The inputs do not fit the listing, or one another.

    Arrays must have the number of dimensions and the extents that their annotations say, one size
    has one value everywhere, integers must be whole and within their declared range.
    """

    code: ClassVar[str] = "E035"
    title: ClassVar[str] = "inputs do not fit"


class NoInputsFound(ExecutionError):
    """No random inputs or sizes were found that satisfy the contracts.

    The usual contracts are understood (monotone, injective, bounded, fixed elements, products of
    sizes). For others, give the arrays in a file, `--inputs in.npz`, and the sizes by `--sizes`.
    """

    code: ClassVar[str] = "E036"
    title: ClassVar[str] = "no inputs found"


class UnreadableInputs(ExecutionError):
    """The file of inputs cannot be read, or the file of outputs cannot be written.

    Inputs are a NumPy archive of plain arrays, one for each argument:
    `numpy.savez("in.npz", Q=Q, K=K)`. Pickled objects are not read.
    """

    code: ClassVar[str] = "E037"
    title: ClassVar[str] = "cannot read or write an archive"


class NoValue(ExecutionError):
    """An operation has no value for these operands.

    Rows of different lengths cannot be combined, `max` and `min` of nothing have no value, nan and
    inf are no integers, and integers are kept in 64 bits.
    """

    code: ClassVar[str] = "E038"
    title: ClassVar[str] = "operation without a value"


EXECUTION_MISTAKES: tuple[type[ExecutionError], ...] = (
    ExecutionError,
    SubscriptOutside,
    NotYetSet,
    IndexDividedByZero,
    ContractViolated,
    InputMismatch,
    NoInputsFound,
    UnreadableInputs,
    NoValue,
)


def numbers_from(low: int, end: int) -> str:
    """Say which integers a range holds, for the remedy of one that lies outside."""
    if low >= end:
        return "at these sizes no integer lies in it; choose other sizes"
    return f"give numbers from {low} to {end - 1}"


class Trap(Exception):
    """A failure deep inside an expression, before it is known which statement it belongs to."""

    def __init__(
        self, kind: type[ExecutionError], message: str, *, why: str = "", remedy: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.why = why
        self.remedy = remedy

    def at(self, where: str, iteration: Mapping[str, int], span: Span) -> ExecutionError:
        """Return the error a person sees: in which statement, at which iteration."""
        place = where
        if iteration:
            place += " at " + ", ".join(f"{name}={value}" for name, value in iteration.items())
        why = f"in {place}" + (f": {self.why}" if self.why else "")
        return self.kind(self.message, span, why=why, remedy=self.remedy)


def not_yet_set(name: str) -> Trap:
    """Return the failure of reading an array or scalar too early."""
    return Trap(
        NotYetSet,
        f"{name!r} is read before anything has set it",
        remedy=f"set {name} before the loop or guard that may be skipped",
    )


FAILURES = (Trap, ZeroDivisionError, OverflowError, ValueError, MemoryError)


def as_trap(failure: BaseException) -> Trap:
    """Give a failure of Python's own arithmetic its place among the mistakes."""
    if isinstance(failure, Trap):
        return failure
    if isinstance(failure, ZeroDivisionError):
        return Trap(
            IndexDividedByZero,
            "an index expression divides by zero",
            remedy="choose sizes for which the divisor is not 0, or guard the statement",
        )
    if isinstance(failure, MemoryError):
        return Trap(NoValue, "there is not enough memory", remedy="choose smaller sizes")
    return Trap(NoValue, str(failure), remedy="check the operands at this iteration")
