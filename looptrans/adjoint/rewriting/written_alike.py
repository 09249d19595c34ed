"""Values and guards that are the same in other words, written in the words that come first.

    m = max(m, scale * sum(…))                    m = max(m, scale * sum(…))
    l = l + exp(sum(…) * scale - m)        ->     l = l + exp(scale * sum(…) - m)

    if j <= i: …    if not j > i: …        ->     if j <= i: …    if j <= i: …

Passes are seen to need the same number, and to run for the same iterations, where these are written
in the same words. What is the same is told by a normal form: products and sums in any order, signs
and literals multiplied out, factors that a sum has in common before it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from looptrans.algebra.positional.bound_names import bound, called, generator_called, nameless
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.affine import Form, form_of
from looptrans.ir.condition import (
    MIRRORED,
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    negation_normal,
)
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    Generator,
    Holds,
    IndexValue,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    Whole,
    arrays_read,
)
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.naming import fresh_name

_Atom: TypeAlias = tuple[Hashable, frozenset[str]]


@dataclass(frozen=True, slots=True)
class WrittenAlike:
    """A program whose equal values and guards are written in the same words.

    Attributes:
        program: The program afterwards.
    """

    program: Program
    text: str = "write what is the same in the same words"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "products and sums are the same in any order, and a guard turned round is the same"
        reason = "their normal forms are equal; over the reals, not bit for bit"
        return Certificate("algebra", law, "legal", reason)


def with_values_alike(program: Program) -> WrittenAlike | None:
    """Write values and guards that are the same in the words that come first.

    Args:
        program: The program.
    """
    words = _Words(program)

    def each_node(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign(values=values):
                return (replace(node, values=tuple(map(words.of, values))),)
            case If(condition):
                return (replace(node, condition=words.of_guard(condition)),)
            case _:
                return (node,)

    after = replace(program, body=rewritten(program.body, each_node))
    return WrittenAlike(after) if words.changed else None


@dataclass(slots=True)
class _Words:
    """The words in which values and guards are written first."""

    program: Program
    values: dict[Hashable, tuple[int, Value]] = field(default_factory=dict)
    guards: dict[Hashable, Condition] = field(default_factory=dict)
    changed: bool = False
    fresh: list[str] = field(default_factory=list)
    real: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        real = (a.name for a in self.program.arrays if a.element in ("float", "bool"))
        self.real = frozenset(real)

    def of(self, value: Value) -> Value:
        """Return a value in the words that came first, whole or in parts."""
        if not isinstance(value, Binary | Unary | Reduce | Call | Select):
            return value
        read = arrays_read(value)
        # Integers and real numbers in equal words are not of one type.
        if not read or not read <= self.real:
            return _with_parts(value, self.of)
        sign, key = _key(value)
        known = self.values.get(key)
        if known is None:
            value = _with_parts(value, self.of)
            self.values[key] = sign, value
            return value
        its, words = known
        if its == sign and nameless(words) == nameless(value):
            return value
        self.changed = True
        words = self._named_as_in(words, value)
        return words if its == sign else Unary("-", words)

    def of_guard(self, condition: Condition) -> Condition:
        """Return a guard in the words that came first."""
        words = self.guards.setdefault(_asked(condition, 0)[0], condition)
        self.changed = self.changed or words != condition
        return words

    def _named_as_in(self, words: Value, value: Value) -> Value:
        """Return a value whose sums count by the names that the sums in another value have."""
        names = list(bound(value))
        if len(set(names)) != len(names) or len(names) != len(list(bound(words))):
            names = []
            for name in bound(words):
                names.append(fresh_name(self.program, name, (*self.fresh, *names)))
            self.fresh += names
        return called(words, iter(names))


def _with_parts(value: Value, change: Callable[[Value], Value]) -> Value:
    """Return a value with what it is made of changed, but for what is inside of sums."""
    match value:
        case Unary(op, operand):
            return Unary(op, change(operand))
        case Binary(op, left, right):
            return Binary(op, change(left), change(right))
        case Call(name, arguments):
            return Call(name, tuple(map(change, arguments)))
        case Select(condition, chosen, otherwise):
            return Select(condition, change(chosen), change(otherwise))
        case _:
            return value


def _by_depth(generators: tuple[Generator, ...], depth: int) -> dict[str, Index]:
    return {each.variable: Var(f"{depth + n}") for n, each in enumerate(generators)}


@dataclass(frozen=True, slots=True)
class _Product:
    """A literal times atoms, over others."""

    literal: Fraction = Fraction(1)
    above: tuple[_Atom, ...] = ()
    below: tuple[_Atom, ...] = ()

    def times(self, other: _Product) -> _Product:
        literal = self.literal * other.literal
        return _Product(literal, (*self.above, *other.above), (*self.below, *other.below))

    def inverted(self) -> _Product:
        return _Product(1 / self.literal, self.below, self.above)

    @property
    def key(self) -> Hashable:
        return self.literal, _bag(a for a, _ in self.above), _bag(a for a, _ in self.below)

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(names for _, names in (*self.above, *self.below)))


def _bag(keys: Iterable[Hashable]) -> Hashable:
    return frozenset(Counter(keys).items())


def _key(value: Value) -> tuple[int, Hashable]:
    """Return the sign of a value and what tells it from all others but for that."""
    product = _product(value, 0)
    sign = 1 if product.literal > 0 else -1
    return sign, replace(product, literal=abs(product.literal)).key


def _of_atom(key: Hashable, names: Iterable[str] = ()) -> _Product:
    return _Product(above=((key, frozenset(names)),))


def _product(value: Value, depth: int) -> _Product:
    """Return a value as a product."""
    match value:
        case Const(number) if _is_literal(number):
            return _Product(Fraction(number))
        case Unary("-", operand):
            return _Product(Fraction(-1)).times(_product(operand, depth))
        case Unary("+", operand):
            return _product(operand, depth)
        case Binary("*", left, right):
            return _product(left, depth).times(_product(right, depth))
        case Binary("/", left, right):
            return _product(left, depth).times(_product(right, depth).inverted())
        case Binary("+" | "-"):
            return _sum(value, depth)
        case IndexValue(index):
            form = form_of(index)
            if form.is_constant and form.constant:
                return _Product(Fraction(form.constant))
            names = variables(index)
            one, other = (_form_key(each) for each in (form, form.times(-1)))
            if repr(one) <= repr(other):
                return _of_atom(("index", one), names)
            return _Product(Fraction(-1)).times(_of_atom(("index", other), names))
        case Reduce("sum", generators, body):
            new = _by_depth(generators, depth)
            inner = _product(value_moved(body, new), depth + len(generators))
            own = {f"{depth + n}" for n in range(len(generators))}
            apart = [tuple(a for a in atoms if not a[1] & own) for atoms in _sides(inner)]
            inside = [tuple(a for a in atoms if a[1] & own) for atoms in _sides(inner)]
            rest = _Product(Fraction(1), inside[0], inside[1])
            ranges, hung = _ranges(generators, new, depth)
            found = _of_atom(("sum", ranges, rest.key), (rest.names | hung) - own)
            return _Product(inner.literal, apart[0], apart[1]).times(found)
        case _:
            return _other(value, depth)


def _sides(product: _Product) -> tuple[tuple[_Atom, ...], tuple[_Atom, ...]]:
    return product.above, product.below


def _is_literal(number: float | int | bool) -> bool:
    return not isinstance(number, bool) and number != 0 and math.isfinite(number)


def _sum(value: Value, depth: int) -> _Product:
    """Return a sum as an atom, its sign before it."""
    terms: list[_Product] = []
    waiting: list[tuple[Value, int]] = [(value, 1)]
    while waiting:
        part, sign = waiting.pop()
        match part:
            case Binary("+", left, right):
                waiting += [(left, sign), (right, sign)]
            case Binary("-", left, right):
                waiting += [(left, sign), (right, -sign)]
            case _:
                terms.append(_Product(Fraction(sign)).times(_product(part, depth)))
    names = frozenset().union(*(term.names for term in terms))
    less = [replace(term, literal=-term.literal) for term in terms]
    if sorted(repr(_stable(t)) for t in terms) <= sorted(repr(_stable(t)) for t in less):
        return _of_atom(("+", _bag(term.key for term in terms)), names)
    return _Product(Fraction(-1)).times(_of_atom(("+", _bag(t.key for t in less)), names))


def _stable(product: _Product) -> Hashable:
    """Return what orders terms, whatever the order in which sets are gone through."""
    return product.literal, sorted(_text(a) for a, _ in product.above)


def _text(key: Hashable) -> str:
    if isinstance(key, frozenset):
        return f"{{{', '.join(sorted(map(_text, key)))}}}"
    if isinstance(key, tuple):
        return f"({', '.join(map(_text, key))})"
    return repr(key)


def _other(value: Value, depth: int) -> _Product:
    """Return what is neither a product nor a sum as an atom."""

    def inner(*values: Value) -> tuple[list[Hashable], frozenset[str]]:
        found = [_product(each, depth) for each in values]
        return [f.key for f in found], frozenset().union(*(f.names for f in found))

    match value:
        case Read(access):
            places = tuple(
                ":" if isinstance(s, Whole) else _form_key(form_of(s)) for s in access.subscripts
            )
            names = access.variables
            return _of_atom(("read", access.array, places), names)
        case Call("max" | "min" as name, arguments):
            keys, names_ = inner(*arguments)
            return _of_atom((name, _bag(keys)), names_)
        case Call(name, arguments):
            keys, names_ = inner(*arguments)
            return _of_atom((name, tuple(keys)), names_)
        case Binary("@", left, right):
            keys, names_ = inner(left, right)
            return _of_atom(("@", _bag(keys)), names_)
        case Binary(op, left, right):
            keys, names_ = inner(left, right)
            return _of_atom((op, tuple(keys)), names_)
        case Compare(op, left, right):
            if op in (">", ">="):
                op, left, right = MIRRORED[op], right, left
            keys, names_ = inner(left, right)
            return _of_atom((op, _bag(keys) if op in ("==", "!=") else tuple(keys)), names_)
        case Select(condition, chosen, otherwise):
            keys, names_ = inner(chosen, otherwise)
            key, asked = _asked(condition, depth)
            return _of_atom(("select", key, tuple(keys)), names_ | asked)
        case Holds(condition):
            key, asked = _asked(condition, depth)
            return _of_atom(("holds", key), asked)
        case Reduce(function, generators, body):
            new = _by_depth(generators, depth)
            inside = _product(value_moved(body, new), depth + len(generators))
            ranges, asked = _ranges(generators, new, depth)
            own = {f"{depth + n}" for n in range(len(generators))}
            return _of_atom((function, ranges, inside.key), (inside.names | asked) - own)
        case _:
            return _of_atom(("other", value))


def _ranges(
    generators: tuple[Generator, ...], new: dict[str, Index], depth: int
) -> tuple[Hashable, frozenset[str]]:
    """Return what tells the ranges of a sum from others, and what they hang on."""
    inside = depth + len(generators)
    keys: list[Hashable] = []
    names: set[str] = set()
    for each in (generator_called(generator, new) for generator in generators):
        ends = each.range
        key, asked = _asked(each.condition, inside)
        keys.append((*(_form_key(form_of(end)) for end in ends.ends), ends.step, key))
        names |= {*ends.variables, *asked}
    return tuple(keys), frozenset(names)


def _form_key(form: Form) -> Hashable:
    return tuple(sorted((repr(term), n) for term, n in form.terms.items())), form.constant


def _asked(condition: Condition, depth: int) -> tuple[Hashable, frozenset[str]]:
    """Return what tells a condition from others, and what it hangs on."""
    return _asked_plain(negation_normal(condition), depth)


def _asked_plain(condition: Condition, depth: int) -> tuple[Hashable, frozenset[str]]:
    match condition:
        case Relation(op, left, right):
            names = frozenset({*variables(left), *variables(right)})
            less = form_of(left).plus(form_of(right), -1)
            more = less.times(-1)
            if op in ("==", "!="):
                return (op, frozenset((_form_key(less), _form_key(more)))), names
            found = less if op in (">", ">=") else more
            if op in ("<", ">"):
                found = found.plus(Form({}, 1), -1)
            return (">=", _form_key(found)), names
        case Data(value):
            product = _product(value, depth)
            return ("data", product.key), product.names
        case Every(parts) | Some(parts):
            found_ = [_asked_plain(part, depth) for part in parts]
            kind = type(condition).__name__
            return (kind, _bag(k for k, _ in found_)), frozenset().union(*(n for _, n in found_))
        case Not(part):
            key, names = _asked_plain(part, depth)
            return ("not", key), names
        case _:
            return ("other", condition), frozenset()
