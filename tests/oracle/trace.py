"""The trace oracle: run a listing on recording arrays and log every access, in order.

It shares no code with the package. The listing's own source is rewritten statement by statement,
so that every read and write goes through a recorder, and then executed; loops, subscripts,
conditions and short circuits are Python's own. Dependences are read off the log by definition.
"""

from __future__ import annotations

import ast
import hashlib
import io
import math
import operator
import re
import textwrap
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from typing import Any, Literal

import numpy as np

Cell = tuple[int, ...]
Pair = tuple[str, tuple[int, ...], str, tuple[int, ...], str]
Instance = tuple[str, tuple[int, ...]]
Context = Literal["value", "guard", "index", "bound"]


@dataclass(frozen=True, slots=True)
class Access:
    """One access of one cell.

    Attributes:
        array: The name of the array; a scalar is an array of rank 0.
        cell: The subscripts, `()` for a scalar.
        write: Whether the cell is written.
        statement: The label of the statement, or of the condition (`G1`, `G2`, …).
        iteration: The values of the enclosing loop variables, outermost first.
        conditional: Whether data decided that the access takes place.
    """

    array: str
    cell: Cell
    write: bool
    statement: str
    iteration: tuple[int, ...]
    conditional: bool


def trace(
    source: str,
    *,
    sizes: Mapping[str, int],
    arrays: Mapping[str, np.ndarray] = {},
    function: str | None = None,
    seed: int = 0,
) -> list[Access]:
    """Run a listing and return all its accesses in execution order.

    Args:
        source: The text of the listing; it is executed, so it must be trusted.
        sizes: The values of the parameters. A parameter that is missing is a random real.
        arrays: The contents of array arguments; the others are random.
        function: The function to run, if the file has several; `Class.method` is understood.
        seed: Chooses the random numbers; equal seeds give equal traces.

    Raises:
        ValueError: The listing uses something that the oracle does not know.
    """
    listing = _Listing(source, function, arrays)
    runtime = _Runtime(seed)
    space = _namespace()
    space.update(_parameters(listing, sizes, arrays, seed))
    space["__rt"] = runtime
    dimensions = {k: v for k, v in space.items() if isinstance(v, int)}
    for name in sorted(listing.cells):
        runtime.arrays[name] = _initial(name, listing, dimensions, sizes, arrays, seed)
    module = _Rewriter(listing).program()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        exec(compile(module, "<listing>", "exec"), space)
    return runtime.log


def loops(source: str, *, function: str | None = None) -> dict[str, tuple[int, ...]]:
    """Return each statement's enclosing loops, outermost first, each as its number in the text.

    Two statements share their first k loops where the first k numbers agree; two loops that
    merely use the same variable have different numbers.
    """
    return dict(_Listing(source, function, {}).loops)


def value_flow(trace: Iterable[Access]) -> set[Pair]:
    """Return the pairs (last writer of the cell, read), without pairs inside one instance."""
    last: dict[tuple[str, Cell], Instance] = {}
    pairs: set[Pair] = set()
    for access in trace:
        place, here = (access.array, access.cell), (access.statement, access.iteration)
        if access.write:
            last[place] = here
        elif place in last and last[place] != here:
            pairs.add((*last[place], *here, access.array))
    return pairs


def memory(trace: Iterable[Access], kind: str) -> set[Pair]:
    """Return the pairs (earlier access, later access) of one cell, without pairs in one instance.

    Args:
        trace: The accesses in order.
        kind: `flow` pairs every write with every later read, `anti` every read with every later
            write, `output` every write with every later write.

    Raises:
        ValueError: The kind is none of the three.
    """
    if kind not in {"flow", "anti", "output"}:
        raise ValueError(f"unknown kind of dependence: {kind!r}")
    source_writes, sink_writes = kind != "anti", kind != "flow"
    sources: dict[tuple[str, Cell], dict[Instance, None]] = {}
    pairs: set[Pair] = set()
    for access in trace:
        place, here = (access.array, access.cell), (access.statement, access.iteration)
        known = sources.setdefault(place, {})
        if access.write == sink_writes:
            pairs.update((*there, *here, access.array) for there in known if there != here)
        if access.write == source_writes:
            known[here] = None
    return pairs


# Values and functions that a listing may name.


def _scalar(value: Any) -> Any:
    """Bring a scalar to bool, exact int or float64."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value) if abs(int(value)) < 1 << 62 else _real(value)
    return _real(value)


def _real(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(np.float64)
    try:
        return np.float64(value)
    except OverflowError:
        return np.float64(math.inf if value > 0 else -math.inf)


def _integer(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"a subscript or loop bound is no integer: {value!r}") from None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer | np.bool_)


def _power(a: Any, b: Any) -> Any:
    if _is_integer(a) and _is_integer(b) and 0 <= int(b) <= 64:
        return int(a) ** int(b)
    return _real(a) ** _real(b)


def _divide(a: Any, b: Any) -> Any:
    return _real(a) / _real(b)


def _exact_or_real(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if _is_integer(a) and _is_integer(b) and int(b) != 0:
            return operation(int(a), int(b))
        return operation(_real(a), _real(b))

    return apply


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": _divide,
    "FloorDiv": _exact_or_real(operator.floordiv),
    "Mod": _exact_or_real(operator.mod),
    "Pow": _power,
    "MatMult": operator.matmul,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
}


def _binary(name: str, a: Any, b: Any) -> Any:
    a, b = (int(x) if isinstance(x, np.bool_) and not name.startswith("Bit") else x for x in (a, b))
    try:
        return _OPERATIONS[name](a, b)
    except OverflowError:
        return _OPERATIONS[name](_real(a), _real(b))


def _extremum(
    exact: Callable[..., Any], real: Callable[[Any, Any], Any], empty: float
) -> Callable[..., Any]:
    def apply(*arguments: Any) -> Any:
        values = list(arguments[0] if len(arguments) == 1 else arguments)
        if values and all(_is_integer(v) for v in values):
            return exact(int(v) for v in values)
        return reduce(real, map(_real, values)) if values else np.float64(empty)

    return apply


def _elementwise(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: function(_real(value))


def _sum(values: Any) -> Any:
    return reduce(lambda a, b: _binary("Add", a, b), values, 0)


def _where(condition: Any, a: Any, b: Any) -> Any:
    chosen = np.where(condition, a, b)
    return chosen if chosen.ndim else _scalar(chosen[()])


def _to_int(value: Any, *_: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.nan_to_num(value).astype(np.int64)
    return int(value) if math.isfinite(value) else 0


def _to_float(value: Any, *_: Any) -> Any:
    return _real(value)


def _uniform(*arguments: Any) -> Any:
    return _noise("uniform", *arguments)


def _filled(value: float) -> Callable[..., Any]:
    def create(shape: Any, *, dtype: Any = None) -> Any:
        return np.full(shape, value, dtype=np.int64 if dtype is _to_int else np.float64)

    return create


def _full(shape: Any, value: Any, *, dtype: Any = None) -> Any:
    exact = dtype is _to_int or (dtype is None and _is_integer(value))
    return np.full(shape, value, dtype=np.int64 if exact else np.float64)


_CREATIONS = ("zeros", "ones", "empty", "full")
_INTEGERS = ("int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_REALS = ("float", "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2")
_MODULES = ("np", "numpy", "math")


def _namespace() -> dict[str, Any]:
    space: dict[str, Any] = {"inf": np.float64(math.inf), "nan": np.float64(math.nan)}
    space["pi"] = np.float64(math.pi)
    for name in ("exp", "exp2", "log", "log2", "sqrt", "tanh", "sin", "cos"):
        space[name] = _elementwise(getattr(np, name))
    space.update(dict.fromkeys(_INTEGERS, _to_int), **dict.fromkeys(_REALS, _to_float))
    space.update(zeros=_filled(0.0), ones=_filled(1.0), empty=_filled(0.0), full=_full)
    space.update(
        max=_extremum(max, np.maximum, -math.inf), min=_extremum(min, np.minimum, math.inf)
    )
    space.update(abs=abs, all=all, any=any, bool=bool, range=range)
    space.update(sum=_sum, where=_where, uniform=_uniform, stop_gradient=lambda x: x)
    return space


def _noise(*key: Any) -> np.float64:
    """Return a reproducible number in [-1, 1) that is a function of the key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=7).digest()
    return np.float64(int.from_bytes(digest) / 2.0**55 - 1.0)


# The recorder.


@dataclass(slots=True)
class _Array:
    """The cells of one array, filled on demand, so that any subscript is a cell."""

    rank: int
    shape: tuple[int, ...] | None
    fresh: Callable[[Cell], Any]
    values: dict[Cell, Any] = field(default_factory=dict)

    def get(self, cell: Cell) -> Any:
        if cell not in self.values:
            self.values[cell] = self.fresh(cell)
        return self.values[cell]


class _Runtime:
    """What the rewritten listing calls; it holds the arrays and the log."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.arrays: dict[str, _Array] = {}
        self.log: list[Access] = []
        self.depth = 0
        self.here: Instance = ("", ())
        self.binary = _binary
        self.integer = _integer
        self.slice = slice

    def begin(self, label: str, iteration: tuple[int, ...]) -> None:
        self.here = (label, iteration)

    def _record(self, name: str, cell: Cell, write: bool) -> None:
        self.log.append(Access(name, cell, write, *self.here, self.depth > 0))

    def _cells(self, name: str, index: tuple[Any, ...]) -> tuple[list[Cell], tuple[int, ...]]:
        """Return the cells that a subscript selects and the shape of the selection."""
        array = self.arrays[name]
        rank = array.rank if array.shape is None else len(array.shape)
        if len(index) > rank:
            raise ValueError(f"{name} has rank {rank}, but {len(index)} subscripts")
        axes: list[Sequence[int]] = []
        shape: list[int] = []
        for axis, item in enumerate(index + (slice(None),) * (rank - len(index))):
            if not isinstance(item, slice):
                axes.append((_integer(item),))
                continue
            if item.stop is None and array.shape is None:
                raise ValueError(f"the extents of {name} are unknown, so its rows are too")
            stop = array.shape[axis] if item.stop is None and array.shape else item.stop
            axes.append(range(item.start or 0, stop, item.step or 1))
            shape.append(len(axes[-1]))
        return list(product(*axes)), tuple(shape)

    def load(self, name: str, index: tuple[Any, ...], log: bool) -> Any:
        cells, shape = self._cells(name, index)
        if log:
            for cell in cells:
                self._record(name, cell, False)
        values = [self.arrays[name].get(cell) for cell in cells]
        if not shape:
            return values[0]
        exact = bool(values) and all(_is_integer(v) for v in values)
        return np.array(values, np.int64 if exact else np.float64).reshape(shape)

    def store(self, name: str, index: tuple[Any, ...], value: Any) -> None:
        cells, shape = self._cells(name, index)
        if not shape and np.ndim(value):
            raise ValueError(f"a row is stored in one cell of {name}")
        for cell, item in zip(cells, np.broadcast_to(np.asarray(value), shape).flat, strict=True):
            self.arrays[name].values[cell] = _scalar(item)
            self._record(name, cell, True)

    def put(self, name: str, value: Any, log: bool) -> None:
        """Bind a name: a scalar to one cell, a row to a local array of its shape."""
        array = self.arrays[name]
        if not np.ndim(value):
            array.shape, array.values = (), {(): _scalar(value)}
        else:
            array.shape = value.shape
            array.values = {cell: _scalar(item) for cell, item in np.ndenumerate(value)}
        if log:
            for cell in array.values:
                self._record(name, cell, True)

    def under(self, thunk: Callable[[], Any]) -> Any:
        with self.guarded():
            return thunk()

    def choose(self, condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
        return self.under(then if condition else other)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def select(self, comparison: str, a: Any, b: Any, target_first: bool) -> Any:
        target, value = (a, b) if target_first else (b, a)
        return value if _COMPARISONS[comparison](a, b) else target


# What stands in the text.


_LABEL = re.compile(r"#+\s*([A-Z]\w*\d+)\s*(?::|#|$)")
_Function = ast.FunctionDef


def _fail(node: ast.AST, what: str) -> ValueError:
    return ValueError(f"line {getattr(node, 'lineno', '?')}: {what}: {ast.unparse(node)}")


class _Normalizer(ast.NodeTransformer):
    """Turn `self.N` into `N`, `np.exp` into `exp` and `A[i][j]` into `A[i, j]`."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", *_MODULES):
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        raise _fail(node, "attribute")

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        inner = node.value
        if not isinstance(inner, ast.Subscript):
            return node
        first, second = _items(inner.slice), _items(node.slice)
        if any(isinstance(item, ast.Slice) for item in first):
            raise _fail(node, "subscript of a slice")
        index = ast.Tuple([*first, *second], ast.Load())
        return ast.copy_location(ast.Subscript(inner.value, index, node.ctx), node)


def _items(index: ast.expr) -> list[ast.expr]:
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (inner for node in nodes for inner in ast.walk(node))


def _names(targets: Iterable[ast.expr]) -> Iterator[str]:
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Tuple | ast.List):
            yield from _names(target.elts)


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _is_creation(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Tuple):
        return all(map(_is_creation, value.elts))
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
        return False
    return value.func.id in _CREATIONS


@dataclass(frozen=True, slots=True)
class _Annotation:
    kind: str
    shape: str
    interval: str | None


def _annotation(node: ast.expr | None) -> _Annotation | None:
    """Read `Float[Array, "M E"]` and `Int[Array, "B T", "0:NP"]`."""
    if not isinstance(node, ast.Subscript):
        return None
    kind = ast.unparse(node.value).rpartition(".")[2]
    texts = [item.value for item in _items(node.slice) if isinstance(item, ast.Constant)]
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    return _Annotation(kind, str(texts[0]), str(texts[1]) if len(texts) > 1 else None)


class _Listing:
    """The listing's text, taken apart: its body, names, labels and loops."""

    def __init__(self, source: str, function: str | None, arrays: Mapping[str, np.ndarray]) -> None:
        source = textwrap.dedent(source)
        module = ast.parse(source)
        body, arguments = self._choose(module, function)
        self.constants = {
            name: node.value.value
            for node in (module.body if body is not module.body else [])
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for name in _names(node.targets)
        }
        nested = {n.name: n for n in [*module.body, *body] if isinstance(n, _Function)}
        self.helpers = [n for n in nested.values() if n.body is not body]
        self.body: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Return):
                break
            if not isinstance(node, _Function | ast.ClassDef | ast.Import | ast.ImportFrom):
                self.body.append(_Normalizer().visit(node))
        self._name(arguments, arrays)
        self.declarations: set[ast.stmt] = set()
        self.statements: list[ast.stmt] = []
        self.conditions: list[ast.If] = []
        self.selects: dict[ast.If, bool] = {}
        self.paths: dict[ast.stmt, tuple[int, ...]] = {}
        self._loop_count = 0
        self._outline(self.body, (), set(self.arguments))
        self._label(source)

    def _choose(
        self, module: ast.Module, name: str | None
    ) -> tuple[list[ast.stmt], ast.arguments | None]:
        found: dict[str, ast.FunctionDef] = {}
        for node in module.body:
            if isinstance(node, _Function):
                found[node.name] = node
            elif isinstance(node, ast.ClassDef):
                methods = [n for n in node.body if isinstance(n, _Function)]
                found.update({f"{node.name}.{n.name}": n for n in methods})
        if name is not None:
            if name not in found:
                raise ValueError(f"no function {name!r}; there are: {', '.join(found) or 'none'}")
            return found[name].body, found[name].args
        looping = [f for f in found.values() if any(isinstance(n, ast.For) for n in ast.walk(f))]
        if not looping and (
            not found or any(isinstance(node, ast.For) for node in _walk(module.body))
        ):
            return module.body, None
        chosen = (looping or list(found.values()))[0]
        return chosen.body, chosen.args

    def _name(self, arguments: ast.arguments | None, arrays: Mapping[str, np.ndarray]) -> None:
        """Sort the names: arrays and local scalars, opaque integer arrays, parameters."""
        given = (
            [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments else []
        )
        self.arguments = [a.arg for a in given if a.arg != "self"]
        self.annotations = {a.arg: n for a in given if (n := _annotation(a.annotation)) is not None}
        defaults = [*arguments.defaults] if arguments else []
        for argument, default in zip(reversed(given), reversed(defaults), strict=False):
            if isinstance(default, ast.Constant):
                self.constants[argument.arg] = default.value
        nodes = [n for n in _walk(self.body) if not isinstance(n, ast.Assert)]
        self.variables = {n for f in nodes if isinstance(f, ast.For) for n in _names([f.target])}
        written = {n for s in nodes if isinstance(s, ast.stmt) for n in _names(_targets(s))}
        self.ranks: dict[str, int] = {}
        indexing: list[ast.AST] = []
        for node in nodes:
            if isinstance(node, ast.Subscript):
                if not isinstance(node.value, ast.Name):
                    raise _fail(node, "subscript of an expression")
                name = node.value.id
                self.ranks[name] = max(len(_items(node.slice)), self.ranks.get(name, 0))
                indexing.append(node.slice)
                if isinstance(node.ctx, ast.Store):
                    written.add(name)
            elif isinstance(node, ast.For | ast.comprehension):
                indexing.append(node.iter)
        self.written = written
        if written & self.variables:
            raise ValueError(f"loop variables are assigned: {sorted(written & self.variables)}")
        shaped = {n for n, a in self.annotations.items() if a.shape.strip()}
        used = {n.id for n in nodes if isinstance(n, ast.Name)}
        shaped |= {n for n, a in arrays.items() if np.ndim(a)}
        self.cells = (written | set(self.ranks) | shaped) & used
        whole = {n for n, a in arrays.items() if np.asarray(a).dtype.kind in "iub"}
        whole |= {n for n, a in self.annotations.items() if a.kind in ("Int", "Bool", "UInt")}
        known = set(self.annotations) | set(arrays)
        whole |= {
            n.value.id
            for n in _walk(indexing)
            if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
        } - known
        self.integers = whole
        self.opaque = (whole & self.cells) - written

    def _outline(self, body: list[ast.stmt], path: tuple[int, ...], known: set[str]) -> None:
        for node in body:
            if isinstance(node, ast.For):
                self._loop_count += 1
                self._outline(node.body, (*path, self._loop_count), known)
            elif isinstance(node, ast.If):
                first = self._select(node)
                if first is not None:
                    self.selects[node] = first
                elif self.is_data(node.test, frozenset()):
                    self.conditions.append(node)
                    self.paths[node] = path
                self._outline(node.body, path, known)
                self._outline(node.orelse, path, known)
            elif targets := _targets(node):
                self.statements.append(node)
                self.paths[node] = path
                names = list(_names(targets))
                creates = _is_creation(getattr(node, "value", None))
                top = node in self.body and not self._loop_count
                plain = not isinstance(node, ast.AugAssign)
                if top and plain and creates and names and not known & set(names):
                    self.declarations.add(node)
                known.update(names)

    def _select(self, node: ast.If) -> bool | None:
        """Recognize `if x > s: s = x`; tell whether the target is the left operand."""
        test, body = node.test, node.body
        if node.orelse or len(body) != 1 or not isinstance(test, ast.Compare):
            return None
        only = body[0]
        if len(test.ops) != 1 or type(test.ops[0]).__name__ not in _COMPARISONS:
            return None
        if not isinstance(only, ast.Assign) or len(only.targets) != 1:
            return None
        sides = ast.unparse(test.left), ast.unparse(test.comparators[0])
        written = ast.unparse(only.targets[0]), ast.unparse(only.value)
        if written == sides:
            return True
        return False if written == sides[::-1] else None

    def _label(self, source: str) -> None:
        """Give each statement its label: from its line's comment, else the next free S."""
        lines: dict[int, str] = {}
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and (match := _LABEL.match(token.string)):
                lines[token.start[0]] = match[1]
        explicit: dict[ast.stmt, str] = {}
        for line, label in lines.items():
            on_line = [s for s in self.statements if line in (s.lineno, s.end_lineno)]
            if on_line and on_line[-1] not in self.declarations:
                explicit.setdefault(on_line[-1], label)
        labels = list(explicit.values())
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"labels given twice: {', '.join(twice)}")
        counted = [s for s in self.statements if s not in self.declarations]
        self.labels: dict[ast.stmt, str] = dict(explicit)
        for prefix, nodes in (("S", counted), ("G", self.conditions)):
            free = (f"{prefix}{k}" for k in range(1, 1 << 30) if f"{prefix}{k}" not in labels)
            self.labels.update({node: next(free) for node in nodes if node not in explicit})
        self.loops = {self.labels[n]: self.paths[n] for n in [*counted, *self.conditions]}

    def is_data(self, node: ast.AST, bound: frozenset[str]) -> bool:
        """Whether an expression depends on anything but loops, parameters and opaque arrays."""
        local = {
            n
            for c in ast.walk(node)
            if isinstance(c, ast.comprehension)
            for n in _names([c.target])
        }
        free = self.cells - self.opaque - bound - local
        return any(isinstance(n, ast.Name) and n.id in free for n in ast.walk(node))


# The rewriting.


def _constant(value: Any) -> ast.Constant:
    return ast.Constant(value)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _tuple(items: list[ast.expr]) -> ast.Tuple:
    return ast.Tuple(items, ast.Load())


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_load("__rt"), method, ast.Load()), list(arguments), [])


def _thunk(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _let(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


class _HelperRewriter(_Normalizer):
    """Helpers compute on values; only their arithmetic is made safe."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = type(node.op).__name__
        return ast.copy_location(_call("binary", _constant(name), node.left, node.right), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list, node.returns = [], None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        node.body = [self.visit(inner) for inner in node.body]
        return node


class _Rewriter:
    """Writes the program that runs the listing and records."""

    def __init__(self, listing: _Listing) -> None:
        self.listing = listing
        self.helpers = {f.name for f in listing.helpers}
        self.functions = set(_namespace()) | self.helpers

    def program(self) -> ast.Module:
        called = {n.id for n in _walk(self.listing.body) if isinstance(n, ast.Name)}
        body: list[ast.stmt] = []
        pending = [f for f in self.listing.helpers if f.name in called]
        while pending:
            helper = pending.pop()
            body.append(_HelperRewriter().visit(helper))
            inner = {n.id for n in ast.walk(helper) if isinstance(n, ast.Name)} - called
            called |= inner
            pending += [f for f in self.listing.helpers if f.name in inner]
        body += self.block(self.listing.body, ())
        return ast.fix_missing_locations(ast.Module(body, []))

    def block(self, body: list[ast.stmt], path: tuple[str, ...]) -> list[ast.stmt]:
        return [
            ast.copy_location(new, node) for node in body for new in self.statement(node, path)
        ] or [ast.Pass()]

    def statement(self, node: ast.stmt, path: tuple[str, ...]) -> list[ast.stmt]:
        match node:
            case ast.Pass() | ast.Assert() | ast.Expr(ast.Constant()):
                return []
            case ast.For():
                return [self.loop(node, path)]
            case ast.If() if node in self.listing.selects:
                return self.select(node, path)
            case ast.If():
                return self.condition(node, path)
            case ast.Assign() | ast.AugAssign():
                return self.assignment(node, path)
            case ast.AnnAssign():
                return self.assignment(node, path) if node.value is not None else []
        raise _fail(node, "unknown statement")

    def loop(self, node: ast.For, path: tuple[str, ...]) -> ast.stmt:
        if not isinstance(node.target, ast.Name) or node.orelse:
            raise _fail(node, "unknown form of loop")
        body = self.block(node.body, (*path, node.target.id))
        return ast.For(node.target, self.range(node.iter, frozenset()), body, [])

    def range(self, node: ast.expr, bound: frozenset[str]) -> ast.expr:
        match node:
            case ast.Call(ast.Name("range"), arguments, []):
                ends = [self.expression(a, "bound", bound) for a in arguments]
                return ast.Call(_load("range"), [_call("integer", end) for end in ends], [])
        raise _fail(node, "a loop runs over a range")

    def begin(self, label: str, path: tuple[str, ...]) -> ast.stmt:
        return ast.Expr(_call("begin", _constant(label), _tuple([_load(v) for v in path])))

    def condition(self, node: ast.If, path: tuple[str, ...]) -> list[ast.stmt]:
        test = self.expression(node.test, "guard")
        body, orelse = self.block(node.body, path), self.block(node.orelse, path)
        if node not in self.listing.labels:
            return [ast.If(test, body, orelse)]
        under = [ast.With([ast.withitem(_call("guarded"))], branch) for branch in (body, orelse)]
        return [self.begin(self.listing.labels[node], path), ast.If(test, [under[0]], [under[1]])]

    def select(self, node: ast.If, path: tuple[str, ...]) -> list[ast.stmt]:
        test, only = node.test, node.body[0]
        assert isinstance(test, ast.Compare) and isinstance(only, ast.Assign)
        value = _call(
            "select",
            _constant(type(test.ops[0]).__name__),
            self.expression(test.left, "value"),
            self.expression(test.comparators[0], "value"),
            _constant(self.listing.selects[node]),
        )
        head = [self.begin(self.listing.labels[only], path), _let("__v", value)]
        return head + self.writes(only.targets, True)

    def assignment(
        self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, path: tuple[str, ...]
    ) -> list[ast.stmt]:
        assert node.value is not None
        declared = node in self.listing.declarations
        head = [] if declared else [self.begin(self.listing.labels[node], path)]
        value = self.expression(node.value, "bound" if declared else "value")
        if isinstance(node, ast.AugAssign):
            old = self.expression(node.target, "value")
            value = _call("binary", _constant(type(node.op).__name__), old, value)
        return [*head, _let("__v", value), *self.writes(_targets(node), not declared)]

    def writes(self, targets: list[ast.expr], log: bool) -> list[ast.stmt]:
        """Store `__v` in the targets, after all subscripts have been evaluated."""
        subscripts: list[ast.stmt] = []
        stores: list[ast.stmt] = []

        def write(target: ast.expr, value: ast.expr) -> None:
            match target:
                case ast.Name(name):
                    stores.append(ast.Expr(_call("put", _constant(name), value, _constant(log))))
                case ast.Subscript(ast.Name(name), index):
                    place = f"__x{len(subscripts)}"
                    subscripts.append(_let(place, self.index(index, "index", frozenset())))
                    stores.append(ast.Expr(_call("store", _constant(name), _load(place), value)))
                case ast.Tuple(elements) | ast.List(elements):
                    for position, element in enumerate(elements):
                        item = ast.Subscript(value, _constant(position), ast.Load())
                        write(element, item)
                case _:
                    raise _fail(target, "unknown target")

        for target in targets:
            write(target, _load("__v"))
        return subscripts + stores

    def index(self, node: ast.expr, context: Context, bound: frozenset[str]) -> ast.expr:
        inner: Context = "bound" if context == "bound" else "index"
        items: list[ast.expr] = []
        for item in _items(node):
            if isinstance(item, ast.Slice):
                ends = [
                    _constant(None)
                    if end is None
                    else _call("integer", self.expression(end, inner, bound))
                    for end in (item.lower, item.upper, item.step)
                ]
                items.append(_call("slice", *ends))
            else:
                items.append(_call("integer", self.expression(item, inner, bound)))
        return _tuple(items)

    def logs(self, name: str, context: Context) -> ast.Constant:
        if context == "bound":
            return _constant(False)
        return _constant(context == "value" or name not in self.listing.opaque)

    def lazily(
        self, operands: list[ast.expr], eager: int, context: Context, bound: frozenset[str]
    ) -> list[ast.expr]:
        """Rewrite operands of which Python evaluates all but the first few by need."""
        new: list[ast.expr] = []
        data = False
        for position, operand in enumerate(operands):
            done = self.expression(operand, context, bound)
            new.append(_call("under", _thunk(done)) if data and position >= eager else done)
            data = data or self.listing.is_data(operand, bound)
        return new

    def expression(
        self, node: ast.expr, context: Context, bound: frozenset[str] = frozenset()
    ) -> ast.expr:
        match node:
            case ast.Constant(value):
                if not isinstance(value, int | float):
                    raise _fail(node, "unknown constant")
                return node
            case ast.Name(name):
                if name in self.listing.cells and name not in bound:
                    return _call("load", _constant(name), _tuple([]), self.logs(name, context))
                return _load(name)
            case ast.Subscript(ast.Name(name), index):
                place = self.index(index, context, bound)
                return _call("load", _constant(name), place, self.logs(name, context))
            case ast.BinOp(left, op, right):
                a, b = (self.expression(x, context, bound) for x in (left, right))
                return _call("binary", _constant(type(op).__name__), a, b)
            case ast.UnaryOp(op, operand):
                return ast.UnaryOp(op, self.expression(operand, context, bound))
            case ast.BoolOp(op, values):
                return ast.BoolOp(op, self.lazily(values, 1, context, bound))
            case ast.Compare(left, ops, comparators):
                first, *rest = self.lazily([left, *comparators], 2, context, bound)
                return ast.Compare(first, ops, rest)
            case ast.IfExp(test, body, orelse):
                condition = self.expression(test, "bound" if context == "bound" else "guard", bound)
                a, b = (self.expression(x, context, bound) for x in (body, orelse))
                if not self.listing.is_data(test, bound):
                    return ast.IfExp(condition, a, b)
                return _call("choose", condition, _thunk(a), _thunk(b))
            case ast.Tuple(elements):
                return _tuple([self.expression(e, context, bound) for e in elements])
            case ast.GeneratorExp() | ast.ListComp():
                return self.comprehension(node, context, bound)
            case ast.Call(ast.Name(name), arguments, keywords) if name in self.functions:
                shape: list[ast.expr] = []
                if name in _CREATIONS and arguments:
                    shape = [self.expression(arguments[0], "bound", bound)]
                return ast.Call(
                    _load(name),
                    shape + [self.expression(a, context, bound) for a in arguments[len(shape) :]],
                    [
                        ast.keyword(k.arg, self.expression(k.value, context, bound))
                        for k in keywords
                    ],
                )
        raise _fail(node, "unknown expression")

    def comprehension(
        self, node: ast.GeneratorExp | ast.ListComp, context: Context, bound: frozenset[str]
    ) -> ast.expr:
        generators: list[ast.comprehension] = []
        data = False
        for part in node.generators:
            over = self.range(part.iter, bound)
            bound |= set(_names([part.target]))
            guard: Context = "bound" if context == "bound" else "guard"
            tests = [self.expression(test, guard, bound) for test in part.ifs]
            data = data or any(self.listing.is_data(test, bound) for test in part.ifs)
            generators.append(ast.comprehension(part.target, over, tests, 0))
        element = self.expression(node.elt, context, bound)
        return ast.GeneratorExp(_call("under", _thunk(element)) if data else element, generators)


# The state at the start.


def _parameters(
    listing: _Listing, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray], seed: int
) -> dict[str, Any]:
    """Return the values of parameters: sizes, given scalars, defaults, else random reals."""
    known = set(_namespace()) | listing.cells | listing.variables
    helpers = {f.name for f in listing.helpers}
    used = {n.id for n in _walk([*listing.body, *listing.helpers]) if isinstance(n, ast.Name)}
    dimensions = {
        d for a in listing.annotations.values() for d in re.findall(r"[A-Za-z_]\w*", a.shape)
    }
    values: dict[str, Any] = {}
    for name in sorted((used | set(listing.arguments) | dimensions | set(sizes)) - helpers):
        if name in sizes:
            if name not in listing.cells | listing.variables:
                values[name] = _scalar(sizes[name])
        elif name in known:
            continue
        elif name in arrays and not np.ndim(arrays[name]):
            values[name] = _scalar(np.asarray(arrays[name])[()])
        elif isinstance(listing.constants.get(name), int | float):
            values[name] = _scalar(listing.constants[name])
        else:
            values[name] = _noise(seed, name)
    return values


def _extent(text: str, sizes: Mapping[str, Any]) -> int:
    """Evaluate the arithmetic of one dimension, such as `B+1` or `2*N`."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(int(number)):
                return number
            case ast.Name(name) if name in sizes:
                return int(sizes[name])
            case ast.UnaryOp(ast.USub(), operand):
                return -value(operand)
            case ast.BinOp(left, op, right):
                return int(_OPERATIONS[type(op).__name__](value(left), value(right)))
        raise _fail(node, "a dimension that sizes does not tell")

    return value(ast.parse(text, mode="eval").body)


def _initial(
    name: str,
    listing: _Listing,
    dimensions: Mapping[str, Any],
    sizes: Mapping[str, int],
    arrays: Mapping[str, np.ndarray],
    seed: int,
) -> _Array:
    """Return an array as it is before the listing starts."""
    low, high = 0, 3
    shape: tuple[int, ...] | None = None if name in listing.ranks else ()
    kind = "Int" if name in listing.integers else "Float"
    if (annotation := listing.annotations.get(name)) is not None:
        shape = tuple(_extent(text, dimensions) for text in annotation.shape.split())
        kind = annotation.kind
        if annotation.interval is not None:
            low, high = (_extent(end, dimensions) for end in annotation.interval.split(":"))

    def fresh(cell: Cell) -> Any:
        noise = _noise(seed, name, cell)
        if kind == "Bool":
            return bool(noise > 0)
        if kind in ("Int", "UInt"):
            return low + int((noise + 1.0) / 2.0 * max(high - low, 1))
        return noise

    array = _Array(listing.ranks.get(name, 0), shape, fresh)
    if name in arrays:
        given = np.asarray(arrays[name])
        array.shape = given.shape
        array.values = {cell: _scalar(item) for cell, item in np.ndenumerate(given)}
    elif name in sizes:
        array.values[()] = _scalar(sizes[name])
    return array
