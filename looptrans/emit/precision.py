"""How exact a matrix product is whose operands are float32 numbers made of 16-bit inputs.

    float32 inputs                           as float32
    16-bit inputs widened, times float32     in the matrix units' own way with float32, TF32
    numbers of 8 bits, times float32         in the same way
    both worked out of 16-bit inputs         in pairs of bfloat16, a number and what it lacks
    float16 inputs widened, times what is    in TF32, what is worked out in two parts
        worked out, and not rounded

Pairs have 16 bits and the range of float32: next to float32 that is nothing where inputs have 11 or
8, and matrix units multiply them, which float32 they do not. TF32 has 11. What is not rounded since
it may grow beyond 16-bit floats, and cancels, needs more next to float16: retention whose weights
grow had an error of 6 %. There pairs would do as well, but each operand in two arrays takes twice
the uniform registers, and where those run out, NVIDIA's compiler in Triton 3.6 (ptxas 12.8) reads
some that nothing has set: on an H200 dV was infinite, or the kernel left its memory.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from looptrans.blocks.block_ir.expr import Cast, Dot, Expr, Load, Name, walk
from looptrans.blocks.block_ir.ops import Let, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.ir.program import EIGHT_BITS

Way: TypeAlias = Literal["float32", "tf32", "widened", "pairs"]


class Precision:
    """Chooses for the products of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._of_inputs = {
            array.name: None
            for array in kernel.arrays
            if array.dtype is None and array.element == "float"
        }
        short = {array.name for array in kernel.arrays if array.dtype in EIGHT_BITS}
        self._made_of: dict[str, dict[str, None]] = {}
        lets = [op for op in ops_in(kernel.body) if isinstance(op, Let)]
        self._loaded = {let.name for let in lets if isinstance(let.value, Load)}
        self._loaded -= {let.name for let in lets if not isinstance(let.value, Load)}
        self._short = short | {
            let.name
            for let in lets
            if let.name in self._loaded
            if isinstance(let.value, Load) and let.value.array in short
        }
        while True:
            before = sum(map(len, self._made_of.values()))
            for let in lets:
                known = self._made_of.setdefault(let.name, {})
                known |= self._arrays(let.value)
            if sum(map(len, self._made_of.values())) == before:
                break

    def way(self, dot: Dot) -> tuple[Way, str]:
        """Return how a product is worked out, and an array that has the type of the inputs."""
        sides = (dot.left, dot.right)
        for side, other in (sides, sides[::-1]):
            array = self._widened(side)
            if array is not None:
                return "tf32" if self._is_read(other) else "widened", array
        if any(self._is_rounded(side) for side in sides):
            return "float32", ""
        arrays = [self._arrays(side) for side in sides]
        return ("pairs", next(iter(arrays[0]))) if all(arrays) else ("float32", "")

    def is_widened(self, side: Expr) -> bool:
        """Tell whether an operand is inputs, untouched, that are widened to float32."""
        return self._widened(side) is not None

    def _widened(self, side: Expr) -> str | None:
        """Return the array of the inputs' type that a side is widened from, or could be."""
        match side:
            case Cast(Name(name) | Load(name), _, None) if name in self._short:
                return next(iter(self._of_inputs), None)
            case Cast(operand, _, None):
                return self._held(operand)
            case _:
                return None

    def _held(self, expr: Expr) -> str | None:
        """Return the array of the inputs' type whose elements a value is, untouched."""
        match expr:
            case Name(_, _, _, str(array)) | Load(array) if array in self._of_inputs:
                return array
            case _:
                return None

    def _is_read(self, expr: Expr) -> bool:
        """Tell whether a value is read from an array as it is: what another kernel left there."""
        match expr:
            case Load():
                return True
            case Name(name):
                return name in self._loaded
            case Cast(operand):
                return self._is_read(operand)
            case _:
                return False

    def _is_rounded(self, side: Expr) -> bool:
        return (isinstance(side, Cast) and side.like is not None) or self._held(side) is not None

    def _arrays(self, expr: Expr) -> dict[str, None]:
        """Return the arrays of the inputs' type that a value is made of."""
        found: dict[str, None] = {}
        for part in walk(expr):
            match part:
                case Load(array) if array in self._of_inputs:
                    found[array] = None
                case Name(name):
                    found |= self._made_of.get(name, {})
                case _:
                    pass
        return found
