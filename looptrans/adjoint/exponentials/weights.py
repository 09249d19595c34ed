"""Exponentials divided by their sum, and masks that are minus infinity inside them.

    l[i] = sum(exp(S[i, j] - m[i]) for j)        P[i, j] = exp(S[i, j] - m[i]) / l[i]

P is made a definition of its own wherever such a sum l is found, whatever it is used for, and each
`exp(S - m)` is then P * l: so that what is left of an adjoint holds no power of l and can be
compared with what is stored. In the end P is worked out as exp(S - lse), where
lse = m + log(l) is the one number of each sum that is kept.

    S[i, j] = a if j <= i else -inf              exp(S[i, j] - m[i]) = [j <= i] * exp(a - m[i])
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from looptrans.adjoint.equations.definitions import Definition, Origin, System, refreshed_generators
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.recognition import (
    Identity,
    Rule,
    divides,
    rewritten,
    rule_of,
    unify,
)
from looptrans.adjoint.equations.solving import simplified_brackets
from looptrans.adjoint.equations.sums import Term, bracketed, combined, expanded
from looptrans.adjoint.equations.written_sums import value_of
from looptrans.adjoint.exponentials.shared_terms import share
from looptrans.adjoint.exponentials.tops import is_surely_finite, runs
from looptrans.adjoint.exponentials.totals import (
    EXPONENTIALS,
    Parts,
    exponential,
    is_divisor,
    is_part,
    parts_of_total,
)
from looptrans.algebra.positional.cells import condition_moved, value_moved
from looptrans.algebra.positional.values import MINUS_INFINITY, ZERO, add, is_number, summands
from looptrans.ir.condition import ALWAYS, Condition, Data, conjunction, negation
from looptrans.ir.index import Index, Var
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Generator,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    condition_variables,
    free_variables,
    walk_value,
)

_LOWEST = float("-inf")


@dataclass(frozen=True, slots=True)
class Weight:
    """An exponential divided by the sum of its like.

    Attributes:
        name: The definition of the quotient.
        total: The definition of the sum.
        function: `exp` or `exp2`.
        exponent: The exponent, in the variables of the quotient's indices.
        is_own: Whether the listing has no definition of the quotient itself.
        beside: Where another weight is divided by the same sum, and found before: that one.
        is_first: Whether the exponential is none of those summed over an index but one that the
            sum began with.
    """

    name: str
    total: str
    function: str
    exponent: Value
    is_own: bool
    beside: str | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class _Mask:
    """`array[indices]` is minus infinity unless the condition holds, and then what `inner` is."""

    indices: tuple[str, ...]
    condition: Condition
    inner: str


@dataclass(slots=True)
class Prepared:
    """Definitions in which weights and masks have been found.

    Attributes:
        system: The definitions.
        outputs: Those that are outputs.
        weights: The weights, by the name of the quotient.
        identities: What atoms are, in terms of what is stored.
        rules: What sums are, in terms of what is stored.
        shared: Sums of a few terms that several definitions have in common.
        masks: What may be minus infinity, and when.
        partial: The sums of exponentials to which others are added before they divide.
        tested: Those of which the listing asks whether they are 0, though they may have terms then.
        is_guarded: Whether the listing asks at all whether rows have terms.
    """

    system: System
    outputs: frozenset[str] = frozenset()
    weights: dict[str, Weight] = field(default_factory=dict)
    identities: list[Identity] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    masks: dict[str, _Mask] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    tested: frozenset[str] = frozenset()
    is_guarded: bool = True

    def terms(self, value: Value) -> list[Term]:
        """Return a value as terms over stored atoms."""
        found = []
        for term in expanded(value, self.system.names):
            unmasked = self.unmasked(term)
            found.append(rewritten(unmasked, self.identities)[0])
        return combined(found)

    @property
    def nonzero(self) -> frozenset[str]:
        """The sums of exponentials, which are positive where their terms are read."""
        return frozenset(weight.total for weight in self.weights.values())

    def learn(self, definition: Definition, term: Term) -> None:
        """Know a sum again from now on."""
        kept = simplified_brackets(term, Facts().inside(definition.indices))
        if kept is None:
            return
        rule = rule_of(definition.name, definition.cell, definition.variables, kept, self.nonzero)
        if rule is not None:
            result = bracketed(rule.result, *self._has_terms(definition, rule))
            self.rules.append(replace(rule, result=result))

    def _has_terms(self, total: Definition, rule: Rule) -> tuple[Condition, ...]:
        """Return when weights that a sum adds up to 1 are there."""
        read = [atom.access.array for atom, _ in rule.pattern.factors if isinstance(atom, Read)]
        weights = [self.weights[name] for name in read if name in self.weights]
        if rule.result.factors or not weights:
            return ()
        assert isinstance(total.value, Reduce)
        bound = total.value.generators
        dense = all(g.condition == ALWAYS for g in bound) and total.name not in self.tested
        if dense and not self.is_guarded:
            facts = Facts().inside(total.indices)
            if all(facts.imply(c) for c in runs(bound) if condition_variables(c)):
                return ()  # where there is no key, or none above -inf, the listing divides by 0
        if dense and is_surely_finite(self.system, weights[0].exponent):
            return tuple(runs(bound))
        return (Data(Compare(">", total.cell, ZERO)),)

    def over_stored(self, term: Term) -> Term:
        """Return a term over what is stored, as far as identities say."""
        return rewritten(term, self.identities)[0]

    def unmasked(self, term: Term) -> Term:
        """Return a term in which no exponential reads what may be minus infinity by a mask."""
        found = replace(term, factors=())
        conditions: list[Condition] = []
        factors: list[tuple[Value, int]] = []
        for atom, exponent in term.factors:
            if isinstance(atom, Call) and atom.function in EXPONENTIALS and exponent > 0:
                inner, needed = self.without_masks(atom.arguments[0])
                conditions += needed
                factors.append((Call(atom.function, (inner,)), exponent))
            else:
                factors.append((atom, exponent))
        return bracketed(replace(found, factors=tuple(factors)), *conditions)

    def without_masks(self, value: Value) -> tuple[Value, list[Condition]]:
        """Return an exponent without masked reads among its terms, and when it is not -inf."""
        match value:
            case Binary("+" | "-" as op, left, right):
                a, first = self.without_masks(left)
                if op == "-":
                    return Binary("-", a, right), first
                b, second = self.without_masks(right)
                return Binary("+", a, b), first + second
            case Read(access) if access.array in self.masks:
                mask = self.masks[access.array]
                here = dict(zip(mask.indices, access.indices, strict=True))
                inner = Read(Access(mask.inner, access.indices))
                return inner, [condition_moved(mask.condition, here)]
            case Select(condition, chosen, otherwise) if _is_lowest(otherwise):
                return chosen, [condition]
            case Select(condition, chosen, otherwise) if _is_lowest(chosen):
                return otherwise, [negation(condition)]
            case _:
                return value, []


def prepared(
    system: System,
    outputs: frozenset[str] = frozenset(),
    tested: frozenset[str] = frozenset(),
    is_guarded: bool = True,
) -> Prepared:
    """Find weights and masks in definitions, and rewrite the definitions with them.

    Args:
        system: The definitions.
        outputs: Those that are outputs, which stand for what they are made of.
        tested: Sums of exponentials that may be 0 though they have terms.
        is_guarded: Whether the listing asks at all whether rows have terms.
    """
    found = Prepared(system, outputs, tested=tested, is_guarded=is_guarded)
    found.shared = share(system)
    for name in list(system.definitions):
        definition = system.definitions[name]
        _find_mask(found, definition)
        definition = system.definitions[name]
        if name in found.weights:
            continue
        if isinstance(definition.value, Reduce) and definition.value.function != "sum":
            continue
        terms = found.terms(definition.value)
        plain = combined(expanded(definition.value, system.names))
        if [str(t) for t in terms] != [str(t) for t in plain] and not _same(terms, plain):
            definition = system.add(replace(definition, value=_rebuilt(definition, terms)))
        parts = parts_of_total(system, definition)
        whole = parts is not None and not is_part(system, definition)
        if parts is not None and whole and is_divisor(system, definition, parts.sums):
            _find_whole(found, definition, parts)
        if len(terms) == 1:
            if not is_part(system, definition) and is_divisor(system, definition, (definition,)):
                _find_weight(found, definition, definition, terms[0])
            _find_identity(found, definition, terms[0])
            _find_multiple(found, definition, terms[0])
            terms = found.terms(definition.value)
            if terms[0].generators:
                found.learn(definition, terms[0])
    return found


def _same(a: list[Term], b: list[Term]) -> bool:
    return {(t.factors, t.brackets) for t in a if not t.generators} == {
        (t.factors, t.brackets) for t in b if not t.generators
    } and not any(t.generators for t in (*a, *b))


def _rebuilt(definition: Definition, terms: list[Term]) -> Value:
    value = definition.value
    if not isinstance(value, Reduce):
        return value_of(terms)
    # One sum stays one sum.
    first = terms[0].generators if terms else ()
    if len(terms) != 1:
        return value
    inside = replace(terms[0], generators=(), brackets=())
    brackets = conjunction(*terms[0].brackets)
    bound = list(first)
    if brackets != ALWAYS:
        bound[-1] = replace(bound[-1], condition=brackets)
    return Reduce("sum", tuple(bound), value_of([inside]))


def _is_lowest(value: Value) -> bool:
    match value:
        case Unary("-", operand):
            return is_number(operand, -_LOWEST)
        case _:
            return is_number(value, _LOWEST)


def _find_mask(found: Prepared, definition: Definition) -> None:
    """Split a definition that may be minus infinity into when and what else."""
    inner, conditions = found.without_masks(definition.value)
    if not conditions:
        return
    name = found.system.names.array(f"{definition.name}_in")
    order = dict(found.system.definitions)
    found.system.definitions.clear()
    for known, each in order.items():
        if known == definition.name:
            found.system.add(replace(definition, name=name, value=inner))
            cell = Read(Access(name, definition.cell.access.subscripts))
            lowest = definition.value
            lowest = Select(conjunction(*conditions), cell, MINUS_INFINITY)
            found.system.add(replace(definition, value=lowest))
        else:
            found.system.add(each)
    found.masks[definition.name] = _Mask(definition.variables, conjunction(*conditions), name)


def _find_weight(
    found: Prepared,
    definition: Definition,
    total: Definition,
    term: Term,
    main: Weight | None = None,
) -> Weight | None:
    """Make a definition of the quotient where a definition is a sum of exponentials.

    Args:
        found: Knows the definitions.
        definition: The sum.
        total: What divides: the sum itself, or what others have been added to.
        term: The sum as a term.
        main: The weight of another sum that divides by the same, if one was found.
    """
    exponent = exponential(term)
    if not term.generators or exponent is None:
        return None
    atom, indices = exponent, (*definition.indices, *term.generators)
    own, new = refreshed_generators(indices, found.system.names)
    argument = value_moved(atom.arguments[0], new)
    if set(free_variables(argument)) != {g.variable for g in own}:
        return None
    return _weigh(found, atom.function, argument, own, total, main)


def _weigh(
    found: Prepared,
    function: str,
    argument: Value,
    own: tuple[Generator, ...],
    total: Definition,
    main: Weight | None = None,
    *,
    is_first: bool = False,
) -> Weight:
    """Make a definition of an exponential divided by a sum, and write the one as the other."""
    system = found.system
    variables = tuple(g.variable for g in own)
    divisor = Read(Access(total.name, tuple(Var(v) for v in variables[: len(total.indices)])))
    numerator = Call(function, (argument,))
    known = _stored_quotient(system, numerator, divisor, frozenset(variables))
    if known is None:
        name = system.names.array(f"{main.name}_first" if main and is_first else "P")
        quotient = Binary("/", numerator, divisor)
        origin: Origin = "again" if is_first else "forward"
        system.add(Definition(name, own, quotient, origin, total.label))
        cell: Value = Read(Access(name, tuple(Var(v) for v in variables)))
    else:
        name, cell = known
    beside = None if main is None else main.name
    assert isinstance(cell, Read)
    # The exponent in the variables of the definition, which may be the listing's own.
    here = {
        index.name: Var(variable)
        for variable, index in zip(
            system.definitions[name].variables, cell.access.indices, strict=True
        )
        if isinstance(index, Var)
    }
    exponent = value_moved(argument, here)
    weight = Weight(name, total.name, function, exponent, known is None, beside, is_first)
    found.weights[name] = weight
    result = Term(Fraction(1), ((cell, 1), (divisor, 1)))
    found.identities.append(Identity(name, variables, numerator, result))
    return weight


def _find_whole(found: Prepared, total: Definition, parts: Parts) -> None:
    """Find the weights of a sum of exponentials that is made of several sums, or began with more.

    Args:
        found: Knows the definitions.
        total: What divides.
        parts: What it is the sum of.
    """
    main: Weight | None = None
    for definition in parts.sums:
        (term,) = found.terms(definition.value)
        weight = _weight_in(found, total, term)
        weight = weight or _find_weight(found, definition, total, term, main)
        if weight is None:
            continue
        main = main or weight
        found.partial.add(definition.name)
        found.learn(definition, found.terms(definition.value)[0])
    if main is None:
        return
    for first in parts.firsts:
        (inside,) = expanded(first.value, found.system.names)
        exponent = exponential(inside)
        assert exponent is not None
        own, new = refreshed_generators(first.indices, found.system.names)
        argument = value_moved(exponent.arguments[0], new)
        found.identities[:] = [i for i in found.identities if i.name != first.name]
        beside = _weigh(found, exponent.function, argument, own, total, main, is_first=True)
        cell = Read(Access(beside.name, tuple(Var(v) for v in first.variables)))
        divisor = Read(Access(total.name, tuple(Var(v) for v in first.variables)))
        result = Term(Fraction(1), ((cell, 1), (divisor, 1)))
        found.identities.append(Identity(beside.name, first.variables, first.cell, result))


def _weight_in(found: Prepared, total: Definition, term: Term) -> Weight | None:
    """Return the weight that a sum adds up, where an earlier sum over other keys has named it."""
    match term.factors:
        case ((Read(one), 1), (Read(other), 1)):
            for cell, divisor in ((one, other), (other, one)):
                weight = found.weights.get(cell.array)
                if weight is not None and weight.total == divisor.array == total.name:
                    return weight
    return None


def _stored_quotient(
    system: System, numerator: Value, total: Value, free: frozenset[str]
) -> tuple[str, Value] | None:
    """Return the definition that is the quotient already, and its cell, if there is one."""
    for other in system.definitions.values():
        if other.has_reduction or not isinstance(other.value, Binary) or other.value.op != "/":
            continue
        bound: dict[str, Index] = {}
        if not unify(Binary("/", numerator, total), other.value, free, bound):
            continue
        back = {v.name: k for k, v in bound.items() if isinstance(v, Var)}
        if set(back) == set(other.variables) and len(back) == len(free):
            cell = Read(Access(other.name, tuple(Var(back[v]) for v in other.variables)))
            return other.name, cell
    return None


def _find_identity(found: Prepared, definition: Definition, term: Term) -> None:
    """Let a quotient or a product that is stored stand for the function it is made of.

    None does for tanh: 1 - tanh(x) ** 2 is worked out from x, since 1 - (y / c) ** 2 cancels.
    """
    if term.generators or term.brackets or definition.name in found.weights:
        return
    for atom, exponent in term.factors:
        own = (
            isinstance(atom, Call)
            and atom.function != "tanh"
            and set(free_variables(atom)) == set(definition.variables)
        )
        if isinstance(atom, Read) and atom.access.array in found.nonzero:
            continue  # what weights are divided by cancels against it, under its own name only
        if isinstance(atom, Read) and atom.access.array in found.system.definitions:
            # The mean stands for the sum that it is a part of.
            others_ = [a for a, _ in term.factors if a != atom]
            inner = found.system.definitions[atom.access.array]
            own = (
                inner.has_reduction
                and set(free_variables(atom)) == set(definition.variables)
                and (definition.name in found.outputs or not any(map(free_variables, others_)))
            )
        if not own or abs(exponent) != 1 or any(i.atom == atom for i in found.identities):
            continue
        others = tuple((a, -p * exponent) for a, p in term.factors if a != atom)
        size = term.coefficient if exponent < 0 else 1 / term.coefficient
        rest = Term(size, others)
        if divides(rest, found.nonzero) or (exponent < 0 and any(map(_is_read, others))):
            continue
        result = replace(rest, factors=((definition.cell, exponent), *others))
        found.identities.append(Identity(definition.name, definition.variables, atom, result))
        return


def _find_multiple(found: Prepared, definition: Definition, term: Term) -> None:
    """Let a weight and what it is multiplied with stand for their product, as under a mask.

    What is summed, and what its gradient is made of, is then a product of the same factors.
    """
    if term.generators or definition.name in (*found.weights, *found.outputs):
        return
    weights = [
        atom.access.array in found.weights and exponent == 1
        for atom, exponent in term.factors
        if isinstance(atom, Read) and set(free_variables(atom)) == set(definition.variables)
    ]
    if any(weights) and definition.indices:
        own = Identity(definition.name, definition.variables, definition.cell, term)
        found.identities.append(own)


def _is_read(factor: tuple[Value, int]) -> bool:
    return any(isinstance(part, Read | Real) for part in walk_value(factor[0]))


def log_sum(weight: Weight, system: System) -> tuple[tuple[Value, ...], Value]:
    """Split an exponent into what its sum runs over and the logarithm of the sum.

    Returns:
        The terms of the exponent that differ within the sum, and the value of the number to take
        off: the others, their sign changed, plus the logarithm of the sum.
    """
    total = system.definitions[weight.total]
    own = system.definitions[weight.name]
    fixed = set(total.variables)
    # The quotient's first indices are those of the sum, under other names.
    cell = next(part for part in _reads(own.value) if part.access.array == weight.total)
    outer = {s.name for s in cell.access.indices if isinstance(s, Var)}
    inside: list[Value] = []
    taken: list[Value] = []
    for sign, part in summands(weight.exponent, 1):
        if set(free_variables(part)) <= outer:
            taken.append(part if sign < 0 else Unary("-", part))
        else:
            inside.append(part if sign > 0 else Unary("-", part))
    logarithm = Call(EXPONENTIALS[weight.function], (cell,))
    assert fixed or not outer
    return tuple(inside), add(*taken, logarithm)


def _reads(value: Value) -> list[Read]:
    return [part for part in walk_value(value) if isinstance(part, Read)]
