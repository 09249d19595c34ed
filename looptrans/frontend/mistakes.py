"""The mistakes a listing can contain, one class each; the docstring is what `explain` prints."""

from __future__ import annotations

from typing import ClassVar

from looptrans.ir.diagnostic import Mistake


class UnreadableFile(Mistake):
    """The file cannot be read as text.

    A listing is a UTF-8 text file of at most 1 MB. The path may name a function in it:
    `nest.py::kernel`, or a method: `nest.py::Model.forward`. `-` reads standard input.
    """

    code: ClassVar[str] = "E001"
    title: ClassVar[str] = "cannot read the listing"


class SyntaxMistake(Mistake):
    """The text is not valid Python.

    A listing is ordinary Python, read by Python's own parser; the place is the one that parser
    names. Indentation must not mix tabs and spaces.
    """

    code: ClassVar[str] = "E002"
    title: ClassVar[str] = "not valid Python"


class TooDeep(Mistake):
    """The text is nested too deeply, or a single expression is too large.

    Split the expression with a scalar temporary.
    """

    code: ClassVar[str] = "E003"
    title: ClassVar[str] = "nested too deeply"


class NothingToRead(Mistake):
    """There is no loop nest in the text.

    A listing is a function whose body is loops and assignments, or bare loops without a function.
    """

    code: ClassVar[str] = "E004"
    title: ClassVar[str] = "no listing in the text"


class WhichFunction(Mistake):
    """The text holds several functions and none was named, or not the one that was.

    Name it after the file: `looptrans show nest.py::kernel`, or `nest.py::Class.method`.
    """

    code: ClassVar[str] = "E005"
    title: ClassVar[str] = "which function"


class UnsupportedStatement(Mistake):
    """The statement is outside the listing language.

    A listing consists of `for … in range(…)`, `if`/`elif`/`else`, assignments, `assert` (a
    contract), small pure helper functions and one `return` of names at the end. There is no
    `while`, `break`, `try`, `del`, class or import in it: their effect on the order of execution
    cannot be described exactly. A `continue` that ends the first branch of an `if` in the body of a
    loop is read as a guard of what follows it, and so is `if j >= n: break` at the start of a loop
    whose variable j goes up and whose body leaves n alone; anywhere else they are errors.

    A loop over `parallel(…)` runs its iterations in no set order. In its body, `with atomic():`,
    `with atomic(turn=j):` and `with reduce("+"):` are the only `with` there is, and `barrier()` the
    only call that stands alone.
    """

    code: ClassVar[str] = "E006"
    title: ClassVar[str] = "statement outside the language"


class UnsupportedExpression(Mistake):
    """The expression is outside the listing language.

    Values are built from numbers, array elements and whole rows, `+ - * / // % ** @`,
    comparisons, `and`/`or`/`not`, ternaries, `sum(… for e in range(E))`, the functions of the
    language and pure helper functions. A listing is read, never executed, so nothing else has a
    meaning in it.
    """

    code: ClassVar[str] = "E007"
    title: ClassVar[str] = "expression outside the language"


class UnknownFunction(Mistake):
    """The function is not one of the language, and not a helper defined in the text.

    Known are exp, exp2, log, log2, sqrt, abs, max, min, tanh, sin, cos, sum, any, all, where,
    uniform, stop_gradient, the casts (float32, float16, bfloat16, float8_e4m3, int32, …) and the
    creations (zeros, ones, empty, full). A helper is `def f(x): return …` with an expression of
    its arguments.
    """

    code: ClassVar[str] = "E008"
    title: ClassVar[str] = "unknown function"


class LoopNotOverRange(Mistake):
    """A loop does not run over a `range`.

    Loops are `for i in range(start, stop, step)` with one variable; only then is the set of its
    iterations known exactly. `reversed(range(…))` is the range that counts the other way.
    `for i in parallel(start, stop, step)`, or numba's `prange`, is the same loop with its
    iterations in no set order.
    """

    code: ClassVar[str] = "E009"
    title: ClassVar[str] = "loop not over a range"


class BadStep(Mistake):
    """The step of a range is neither a number nor a size, or it is zero.

    The step decides the order of the iterations and must be known: 1, -1, 2, …. A loop whose step
    is a size, range(0, N, BLOCK), counts blocks of it, and the size has to be at least 1.
    """

    code: ClassVar[str] = "E010"
    title: ClassVar[str] = "step not constant"


class LoopVariableAssigned(Mistake):
    """A loop variable is assigned in its own loop, or used by two loops inside one another.

    Python would go on with the next value all the same; the iteration domain would no longer be
    what the `range` says.
    """

    code: ClassVar[str] = "E011"
    title: ClassVar[str] = "loop variable assigned"


class NonAffineIndex(Mistake):
    """A subscript, bound or guard is not affine.

    Index expressions are sums of loop variables and parameters times constants, floor division
    and modulo by a constant or a size, `min` and `max`, and elements of integer arrays that the
    nest does not write. Products of loop variables (`A[i*j]`), true division and real numbers
    are outside: no exact statement about them is possible.
    """

    code: ClassVar[str] = "E012"
    title: ClassVar[str] = "index not affine"


class WrittenIndexArray(Mistake):
    """An array the nest writes, or one that holds no integers, stands in an index expression.

    An integer array may stand in bounds, guards and subscripts when the nest does not write it:
    then it is a fixed function of its arguments. A scalar may when it was last set to an index
    expression, such as `k = i + 1`.
    """

    code: ClassVar[str] = "E013"
    title: ClassVar[str] = "index read from something that changes"


class UnsetName(Mistake):
    """A name is used before it is set, or nowhere set at all.

    Arrays and scalars are arguments of the function or assigned before they are read; sizes may
    also appear freely in bounds, guards, subscripts and shapes.
    """

    code: ClassVar[str] = "E014"
    title: ClassVar[str] = "name used before it is set"


class WrongRank(Mistake):
    """An array is used with a number of subscripts, or in a shape, that does not fit it.

    A row (`Q[i]` of a two-dimensional array) may be used as a whole; operands of one operator
    must be numbers or rows, `@` takes two rows, and a row can be stored only into a row.
    """

    code: ClassVar[str] = "E015"
    title: ClassVar[str] = "ranks do not fit"


class NegativeSubscript(Mistake):
    """A subscript is negative.

    NumPy would count from the end of the array; in a listing a subscript means itself, and a
    negative one is outside the array.
    """

    code: ClassVar[str] = "E016"
    title: ClassVar[str] = "negative subscript"


class DuplicateLabel(Mistake):
    """Two statements carry the same label, or one label stands on several statements.

    A label (`# S3: …`) names one statement in every report.
    """

    code: ClassVar[str] = "E017"
    title: ClassVar[str] = "duplicate label"


class BadAnnotation(Mistake):
    """A shape in an annotation cannot be read.

    Shapes are written `Float[Array, "M E"]`, `Int[Array, "B T", "0:NP"]`: a string of extents
    separated by spaces, each an integer, a size, or an expression of sizes without spaces
    (`H//R`, `B+1`), and for integer arrays a range `low:high` of the values.
    """

    code: ClassVar[str] = "E018"
    title: ClassVar[str] = "annotation not understood"


class SharedRow(Mistake):
    """Two names share one row, and writing through one would change the other.

    In NumPy `q = A[i]` and `p = q` give a second name to the same memory. A listing means values,
    so it may not depend on that: where the memory is written while the other name is still read,
    take a copy, `q = A[i].copy()`.
    """

    code: ClassVar[str] = "E019"
    title: ClassVar[str] = "row shared by two names"


class BadContract(Mistake):
    """A contract cannot be read, or no sizes satisfy all there are.

    A contract is `assert` followed by a comparison of sizes (`assert H == G * R`) or by
    `all(comparison for b in range(B))` over elements of integer arrays
    (`assert all(cu[b] <= cu[b + 1] for b in range(B))`). Contracts are assumed to hold; where they
    contradict each other nothing can be said of the listing, because everything would follow.
    """

    code: ClassVar[str] = "E020"
    title: ClassVar[str] = "contract not understood"


class BadReturn(Mistake):
    """A `return` is not the last line, or returns something other than names.

    A listing returns arrays or scalars by name at its end: `return O, m, l`.
    """

    code: ClassVar[str] = "E021"
    title: ClassVar[str] = "return not understood"


class NameTaken(Mistake):
    """A name of the listing is also a function of the language that the listing uses.

    Any name may be used for an array, a scalar or a loop, `sum = 0.0` too, as long as the listing
    does not need the function of that name: `if x > s: s = x` is `s = max(s, x)`.
    """

    code: ClassVar[str] = "E022"
    title: ClassVar[str] = "name means two things"


class Misplaced(Mistake):
    """A barrier, an atomic block or a reduce block stands where it has no meaning.

    All three belong to a parallel loop, `for j in parallel(0, N):`.

    - `barrier()` stands directly in the body of the parallel loop, so that every iteration comes to
      it exactly once; not in a guard, a loop inside or a `with`.
    - `with atomic():` stands anywhere in it, but not inside another atomic block.
    - `with atomic(turn=j):`, which the iterations of j go through in their order, stands directly
      in the body of the parallel loop j.
    - `with reduce("+"):` stands anywhere in it.
    """

    code: ClassVar[str] = "E023"
    title: ClassVar[str] = "not in its place in a parallel loop"


class BadReduction(Mistake):
    """A reduce block holds something that is not an update with its operator.

    In `with reduce("+"):` every statement is `cell += x`, or `cell = cell + x` with the cell first;
    for `"*"`, `"max"` and `"min"` likewise, `cell = max(cell, x)`. The iterations of the parallel
    loop hand in their x, which are combined in no set order and joined to the cell at the end, so
    nothing in the block may look at a cell that it updates. Sequential loops and guards around
    the updates are fine. A cell that is private has nobody to share it with.
    """

    code: ClassVar[str] = "E024"
    title: ClassVar[str] = "no update in a reduce block"


class BadPrivate(Mistake):
    """A `private:` line cannot be read, or a private name is used outside its loop.

    `private: x` or `private: (x, y)`, the first line of the body of a loop, gives each iteration
    arrays and scalars of its own. A copy starts without a value and ends with its iteration, so the
    name is used nowhere else; a creation at the top (`x = zeros(D)`) may give it its shape. What
    the caller sees, an argument or a returned array, cannot be private.
    """

    code: ClassVar[str] = "E025"
    title: ClassVar[str] = "private name not understood"


class PrivatePlacement(Mistake):
    """The annotated placement would tear a loop with private names apart.

    With `--placement annotated` a statement goes to the loops its comment says. A loop that it
    leaves is closed before it and opened again after it, and the private copies of the first part
    would be gone in the second.
    """

    code: ClassVar[str] = "E026"
    title: ClassVar[str] = "placement tears private names apart"


MISTAKES: tuple[type[Mistake], ...] = (
    UnreadableFile,
    SyntaxMistake,
    TooDeep,
    NothingToRead,
    WhichFunction,
    UnsupportedStatement,
    UnsupportedExpression,
    UnknownFunction,
    LoopNotOverRange,
    BadStep,
    LoopVariableAssigned,
    NonAffineIndex,
    WrittenIndexArray,
    UnsetName,
    WrongRank,
    NegativeSubscript,
    DuplicateLabel,
    BadAnnotation,
    SharedRow,
    BadContract,
    BadReturn,
    NameTaken,
    Misplaced,
    BadReduction,
    BadPrivate,
    PrivatePlacement,
)
