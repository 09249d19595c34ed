"""The functions a listing may call in a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the language.

    Attributes:
        name: Its name in a listing.
        least: The least number of arguments.
        most: The greatest number of arguments, or None where there is no limit.
        reduces: Whether one argument that is a row gives a number (`sum(row)`).
    """

    name: str
    least: int
    most: int | None
    reduces: bool = False


ELEMENTWISE = ("exp", "exp2", "log", "log2", "sqrt", "abs", "tanh", "sin", "cos")
CASTS = (
    "float",
    "int",
    "bool",
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
    "int64",
    "int32",
)
CREATIONS = ("zeros", "ones", "empty", "full")

FUNCTIONS: dict[str, Function] = {
    **{name: Function(name, 1, 1) for name in ELEMENTWISE},
    **{name: Function(name, 1, 1) for name in CASTS},
    "max": Function("max", 1, None, reduces=True),
    "min": Function("min", 1, None, reduces=True),
    "sum": Function("sum", 1, 1, reduces=True),
    "where": Function("where", 3, 3),
    "stop_gradient": Function("stop_gradient", 1, 1),
    "uniform": Function("uniform", 1, 4),
    "copy": Function("copy", 1, 1),
}


def is_as_written(literal: float, number: float) -> bool:
    """Tell whether a literal says the first digits of a number: in float32 the two are one."""
    return abs(literal - number) <= abs(number) * 2.0**-26
