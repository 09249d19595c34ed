"""Values that get names of their own before adjoints are worked out.

What a maximum is taken of, where it is worked out elsewhere as well:

    m[i] = max(c * tanh(s[i, j]) for j)                  t[i, j] = c * tanh(s[i, j])
    l[i] = sum(exp(c * tanh(s[i, j]) - m[i]) for j)  ->  m[i] = max(t[i, j] for j)
                                                         l[i] = sum(exp(t[i, j] - m[i]) for j)

What tanh is taken of, whose derivative 1 - tanh ** 2 is a difference:

    y[i] = tanh(a * x[i])    ->    u[i] = a * x[i];  y[i] = tanh(u[i])

What tanh gives, where it is multiplied by a sum, whose terms would be multiplied with those of the
difference:

    y[i] = (1 - g[i]) * tanh(x[i])    ->    t[i] = tanh(x[i]);  y[i] = (1 - g[i]) * t[i]

Factors of a sum that are sums of products of what is given:

    s[i, j] = sum((q[i, e] * c[i, e] - u[i, e]) * k[j, e] for e)
        ->    a[i, e] = q[i, e] * c[i, e] - u[i, e];  s[i, j] = sum(a[i, e] * k[j, e] for e)

Their adjoints are then one value each, which is multiplied with derivatives, and not many sums of
products that cancel each other.

The other way round, an exponential that a single sum reads is put into it, where it is recognized
beside those that are written out; so is a sum of elements, whose derivatives are 1:

    w[i, j] = exp(s[i, j] - m[i]);  o[i] = sum(w[i, j] / l[i] * v[j] for j)    ->    o[i] = …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.adjoint.equations.definitions import Definition, Origin, System
from looptrans.adjoint.equations.recognition import read_instead
from looptrans.algebra.positional.cells import range_moved, value_moved
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Binary,
    Call,
    Generator,
    Read,
    Reduce,
    Value,
    free_variables,
    has_reduction,
    walk_value,
)


def named(system: System, outputs: frozenset[str]) -> None:
    """Give such values definitions, and put such exponentials where they are read.

    Args:
        system: The definitions, which are changed.
        outputs: Those that are outputs, which stay.
    """
    _put_in(system, outputs)
    for name in _names(system):
        match system.definitions[name].value:
            case Reduce("sum", generators, body):
                for factor in _factors(body):
                    if _is_worth_a_name(system, system.definitions[name], factor, generators):
                        _name(system, name, factor, "factor", outputs, alone=True)
            case _:
                pass
    for name in _names(system):
        match system.definitions[name].value:
            case Reduce("max" | "min", _, body):
                _name(system, name, body, "term", outputs, alone=False)
            case _:
                pass
    for name in _names(system):
        while True:
            found = [
                part.arguments[0]
                for part in walk_value(system.definitions[name].value)
                if isinstance(part, Call) and part.function == "tanh"
            ]
            if not any(_name(system, name, value, "in", outputs, alone=True) for value in found):
                break
    for name in _names(system):
        for product in filter(_is_product, walk_value(system.definitions[name].value)):
            factors = _factors(product)
            if not any(isinstance(f, Binary) and f.op in "+-" for f in factors):
                continue
            for factor in factors:
                if isinstance(factor, Call) and factor.function == "tanh":
                    _name(system, name, factor, "tanh", outputs, alone=True)


def _names(system: System) -> Iterator[str]:
    """Yield the names of definitions, but of those that are forgotten on the way."""
    yield from (name for name in list(system.definitions) if name in system.definitions)


def _put_in(system: System, outputs: frozenset[str]) -> None:
    for name, definition in list(system.definitions.items()):
        readers = [d for d in system.definitions.values() if name in d.reads()]
        alone = len(readers) == 1 and isinstance(readers[0].value, Reduce)
        if name in outputs or not (
            (alone and _is_exponential(definition.value))
            or (definition.origin == "again" and _adds_elements(definition.value))
        ):
            continue

        _read_instead(system, name, readers)


def _read_instead(system: System, name: str, readers: list[Definition]) -> None:
    """Put the value of a definition in where it is read, and forget it."""

    def change(part: Value) -> Value | None:
        if isinstance(part, Read) and part.access.array == name:
            return system.instance(name, part.access.indices)
        return None

    for reader in readers:
        system.add(replace(reader, value=replaced(reader.value, change)))
    del system.definitions[name]


def _is_exponential(value: Value) -> bool:
    """Tell whether a value is an exponential, or one divided or multiplied by something."""
    match value:
        case Binary("*", left, right):
            return _is_exponential(left) or _is_exponential(right)
        case Binary("/", left, _):
            return _is_exponential(left)
        case _:
            return isinstance(value, Call) and value.function == "exp"


def _adds_elements(value: Value) -> bool:
    """Tell whether a value is nothing but elements of arrays, added and taken away."""
    match value:
        case Binary("+" | "-", left, right):
            return _adds_elements(left) and _adds_elements(right)
        case _:
            return isinstance(value, Read)


def _factors(value: Value) -> list[Value]:
    """Return the factors of the products that a value adds up."""
    match value:
        case Binary("+" | "-", left, right):
            return [*_factors(left), *_factors(right)]
        case Binary("*", left, right):
            return [
                f
                for each in (left, right)
                for f in (_factors(each) if _is_product(each) else [each])
            ]
        case _:
            return []


def _is_product(value: Value) -> bool:
    return isinstance(value, Binary) and value.op == "*"


def _is_worth_a_name(
    system: System, of: Definition, factor: Value, generators: tuple[Generator, ...]
) -> bool:
    """Tell whether a factor is a sum of products of what is given, and has not all indices.

    One that is summed up to an index, as for e < i, would have no array to lie in.
    """
    if not isinstance(factor, Binary) or factor.op not in "+-" or _adds_elements(factor):
        return False
    reads = [part.access.array for part in walk_value(factor) if isinstance(part, Read)]
    computed = [system.definitions[name] for name in reads if name in system.definitions]
    own = set(free_variables(factor))
    ends: list[Index] = []
    for generator in generators:
        if generator.variable in own:
            ends += generator.range.ends
    return (
        all(d.origin == "again" for d in computed)
        and not own >= set(of.variables)
        and not any(variables(end) for end in ends)
    )


def _name(
    system: System,
    of: str,
    value: Value,
    ending: str,
    outputs: frozenset[str],
    *,
    alone: bool,
) -> bool:
    """Give a part of a definition a definition of its own; tell whether that was done.

    Definitions of the same are forgotten, but outputs, and it is read for them.

    Args:
        system: The definitions.
        of: The definition.
        value: The part.
        ending: How its name ends.
        outputs: Definitions that are outputs.
        alone: Whether it gets one even if no other definition has it.
    """
    made = _made(system, system.definitions[of], value, ending)
    if made is None:
        return False
    readers = {d.name: _read(made, d) for d in system.definitions.values()}
    changed = [name for name, new in readers.items() if new != system.definitions[name]]
    if of not in changed or (changed == [of] and not alone):
        return False
    name = system.names.array(made.name)
    for definition in list(system.definitions.values()):
        system.add(_read(replace(made, name=name), definition))
    system.add(replace(made, name=name))
    for copy in (each for each in changed if each not in outputs):
        match system.definitions[copy].value:
            case Read(access) if access.array == name:
                readers = {d.name: d for d in system.definitions.values() if copy in d.reads()}
                _read_instead(system, copy, list(readers.values()))
            case _:
                pass
    system.sort()
    return True


def _made(system: System, of: Definition, body: Value, ending: str) -> Definition | None:
    """Return a definition of a value, or None where it is read already or has no place."""
    reads = [part for part in walk_value(body) if isinstance(part, Read)]
    if isinstance(body, Read) or not reads or has_reduction(body):
        return None
    inner = of.value.generators if isinstance(of.value, Reduce) else ()
    scope = {g.variable: g for g in (*of.indices, *inner)}
    wanted = set(free_variables(body))
    while True:
        ends = [e for n in wanted & scope.keys() for e in scope[n].range.ends]
        more = {name for end in ends for name in variables(end)} - wanted
        if not more:
            break
        wanted |= more
    if not wanted <= scope.keys() or any(scope[n].range.step != 1 for n in wanted):
        return None
    new: dict[str, Index] = {}
    indices = []
    for name, g in scope.items():
        if name in wanted:
            variable = system.names.variable(name)
            indices.append(Generator(variable, range_moved(g.range, new), ALWAYS))
            new[name] = Var(variable)
    wish = f"{of.array or of.name}_{ending}"
    origin: Origin = "again" if ending == "factor" else "forward"
    return Definition(wish, tuple(indices), value_moved(body, new), origin, of.label)


def _read(made: Definition, definition: Definition) -> Definition:
    """Return a definition that reads another wherever it works out the same over its range."""
    scope = ranges_by_name(definition.indices)
    if isinstance(definition.value, Reduce):
        scope |= ranges_by_name(definition.value.generators)

    def change(part: Value) -> Value | None:
        return read_instead(made, part, scope)

    return replace(definition, value=replaced(definition.value, change))
