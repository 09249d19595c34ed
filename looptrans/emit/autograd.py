"""What makes the launchers of a forward and a backward pass one differentiable function, as text.

Both are registered as operators of torch, so that `torch.compile` sees two operations and looks no
further. What is saved is what the kernels of the backward pass read; an argument of which they need
the shape alone is not kept alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from looptrans.blocks.block_ir.program import Filled
from looptrans.emit.checks import Checks
from looptrans.emit.facts import Facts
from looptrans.emit.identifiers import Scope, in_ascii
from looptrans.emit.launcher import Launcher, title_of
from looptrans.emit.launches import Launches, names_python, shape_python
from looptrans.emit.layout import COLUMNS, INDENT, filled, fits, heading, statement, words
from looptrans.ir.index import parameters

if TYPE_CHECKING:
    from looptrans.adjoint.derived import Backward

DIGEST = "0digest0"
"""What stands in the operators' names until the text is known."""


@dataclass(frozen=True, slots=True)
class Called:
    """What the functions around the launchers are called.

    Attributes:
        launcher: The differentiable function.
        forward: The operator of the forward pass.
        backward: The operator of the backward pass.
        keep: What saves tensors for the backward pass.
        gradients: What returns gradients to torch.
        second: What refuses a second derivative.
        operators: What torch calls the two operators.
    """

    launcher: str
    forward: str
    backward: str
    keep: str
    gradients: str
    second: str
    operators: tuple[str, str]


@dataclass(slots=True)
class Autograd:
    """Writes the functions around two launchers.

    Attributes:
        found: The backward pass.
        called: What they are called.
        forward: The launcher of the forward pass.
        backward: The launcher of the gradients.
        helpers: The functions of `runtime_text` that they call, filled while they are written.
    """

    found: Backward
    called: Called
    forward: Facts
    backward: Facts
    helpers: set[str] = field(default_factory=set)
    tensors: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        reals = [p.name for p in self.forward.parameters.reals if p.name in self.found.gradients]
        # A real parameter that receives a gradient is handed over twice, as a number and as what
        # torch knows the gradient's place by.
        self.tensors = {
            name: self.forward.scope.name(
                "tensor", name, wanted=f"{self.forward.names[name]}_tensor"
            )
            for name in reals
        }

    def functions(self) -> list[list[str]]:
        """Return the definitions in order."""
        return [
            self._forward(),
            self._forward_fake(),
            self._backward(),
            self._backward_fake(),
            self._keep(),
            self._gradients(),
            self._second(),
            self._launcher(),
        ]

    # What there is.

    @property
    def _outputs(self) -> list[str]:
        """The outputs of the operator: what the launcher makes."""
        return [n for n in dict.fromkeys(self.forward.program.outputs) if n in self.forward.made]

    @property
    def _options(self) -> list[str]:
        parts = [part.partition("=")[0] for part in Launcher(self.forward).signature()]
        return [part for part in parts if part in ("tune", "check")]

    @property
    def _arguments(self) -> list[str]:
        """The arguments of the forward operator, in order."""
        names = [self.forward.names[name] for name in self.forward.parameters.names]
        return [*names, *self.tensors.values(), *self._options]

    @property
    def _is_tuned(self) -> bool:
        return any(each.tuned for each in self.backward.configurations)

    @property
    def _read(self) -> set[str]:
        """The arrays that a kernel of the backward pass looks into."""
        return {array.name for kernel in self.backward.program.kernels for array in kernel.arrays}

    @property
    def _kept(self) -> list[str]:
        """The arrays that are saved."""
        arrays = (array.name for array in self.backward.parameters.arrays)
        return [n for n in arrays if n in self._read and n not in self.found.incoming.values()]

    @property
    def _unread(self) -> list[str]:
        """The arrays of which the backward pass needs the shape alone."""
        arrays = (array.name for array in self.backward.parameters.arrays)
        return [n for n in arrays if n not in self._read and n not in self.found.incoming.values()]

    @property
    def _numbers(self) -> list[str]:
        """The numbers that the backward pass is called with."""
        numbers = (*self.backward.parameters.reals, *self.backward.parameters.integers)
        return [parameter.name for parameter in numbers]

    # The operators.

    def _typed(self, facts: Facts) -> list[str]:
        kinds = {array.name: "torch.Tensor" for array in facts.parameters.arrays}
        kinds |= {parameter.name: "float" for parameter in facts.parameters.reals}
        kinds |= {parameter.name: "int" for parameter in facts.parameters.integers}
        return [f"{facts.names[name]}: {kinds[name]}" for name in facts.parameters.names]

    def _forward(self) -> list[str]:
        typed = self._typed(self.forward)
        typed += [f"{name}: torch.Tensor | None" for name in self.tensors.values()]
        typed += [f"{name}: bool" for name in self._options]
        count = len(self._outputs)
        kind = f"tuple[{', '.join(['torch.Tensor'] * count)}]" if count > 1 else "torch.Tensor"
        call = f"{self.forward.name}({', '.join(self._passed())})"
        made = [n in self.forward.made for n in self.forward.program.outputs]
        names = self.forward.program.outputs
        if all(made) and len(set(names)) == count:
            body = statement(f"return {call}" + "[0]" * (count == 1), 1)
        else:
            body = statement(f"found = {call}", 1)
            places = ", ".join(f"found[{names.index(name)}]" for name in self._outputs)
            body += statement(f"return {places}", 1)
        return [
            *self._operator(self.called.operators[0], typed, kind),
            *_definition(self.called.forward, typed, kind),
            *body,
        ]

    def _passed(self) -> list[str]:
        """Return what the launcher is called with; what stands behind `*` has its name."""
        parts = [part.partition("=")[0] for part in Launcher(self.forward).signature()]
        star = parts.index("*") if "*" in parts else len(parts)
        return [*parts[:star], *(f"{part}={part}" for part in parts[star + 1 :])]

    def _forward_fake(self) -> list[str]:
        made = [self.forward.made[name] for name in self._outputs]
        values = [self._empty(self.forward, each) for each in made]
        body = [*self._sizes(self.forward, made)]
        if len(values) == 1:
            body += statement(f"return {values[0]}", 1)
        else:
            body += [f"{INDENT}return (", *(line for v in values for line in statement(v + ",", 2))]
            body += [f"{INDENT})"]
        return [
            f"@{self.called.forward}.register_fake",
            *_definition("_", self._arguments),
            *body,
        ]

    def _backward(self) -> list[str]:
        gradients = self.backward.program.outputs
        names = [self.backward.names[name] for name in self.backward.parameters.names]
        listed = names_python(gradients)
        chosen = f"[name for name, each in zip({listed}, wanted) if each]"
        options = [f"wanted={chosen}"] + ["tune=tune"] * self._is_tuned
        call = f"{self.backward.name}({', '.join([*names, *options])})"
        typed = [*self._typed(self.backward), "wanted: list[bool]"]
        typed += ["tune: bool"] * self._is_tuned
        kind = "list[torch.Tensor]"
        return [
            *self._operator(self.called.operators[1], typed, kind),
            *_definition(self.called.backward, typed, kind),
            *statement(f"found = {call}", 1),
            f"{INDENT}return [gradient for gradient in found if gradient is not None]",
        ]

    def _backward_fake(self) -> list[str]:
        made = [self.backward.made[name] for name in self.backward.program.outputs]
        names = [self.backward.names[name] for name in self.backward.parameters.names]
        lines = [f"{INDENT}found = ("]
        for each in made:
            lines += statement(self._empty(self.backward, each) + ",", 2)
        return [
            f"@{self.called.backward}.register_fake",
            *_definition("_", [*names, "wanted"] + ["tune"] * self._is_tuned),
            *self._sizes(self.backward, made),
            *lines,
            f"{INDENT})",
            f"{INDENT}return [gradient for gradient, each in zip(found, wanted) if each]",
        ]

    def _operator(self, name: str, typed: Sequence[str], kind: str) -> list[str]:
        """Return what makes a function an operator; names of arguments must be in ASCII there."""
        free = f'{self._help("_free")}("{name}")'
        line = f"@torch.library.custom_op({free}, mutates_args=())"
        if all(each.isascii() for each in typed):
            return statement(line, 0)
        first, *more = [f'"{part}"' for part in _schema(typed, kind)]
        schema = [f"{INDENT}schema={first},"]
        if more:
            lines = [f"{INDENT * 2}{part}" for part in (first, *more)]
            schema = [f"{INDENT}schema=(", *lines, f"{INDENT}),"]
        options = [f"{INDENT}{free},", f"{INDENT}mutates_args=(),", *schema]
        return ["@torch.library.custom_op(", *options, ")"]

    def _empty(self, facts: Facts, made: Filled) -> str:
        shape = shape_python(made.shape, facts.names)
        dtype = Launches(facts).dtype(made)
        return f"torch.empty({shape}, dtype={dtype}, device={facts.device()})"

    def _sizes(self, facts: Facts, made: Sequence[Filled]) -> list[str]:
        """Return the statements that find the sizes of arrays."""
        steps = {step.name: step for step in facts.parameters.sizes}
        needed: set[str] = set()
        pending = [name for each in made for extent in each.shape for name in parameters(extent)]
        while pending:
            name = pending.pop()
            if name not in steps or name in needed:
                continue
            needed.add(name)
            parts = (steps[name].less, steps[name].divisor, steps[name].value)
            pending += [n for part in parts if part is not None for n in parameters(part)]
        checks = Checks(facts)
        return [
            line
            for step in facts.parameters.sizes
            if step.name in needed
            for line in statement(f"{facts.names[step.name]} = {checks.solution(step)}", 1)
        ]

    # What torch calls.

    def _keep(self) -> list[str]:
        names, given = self.forward.names, self._arguments
        outputs = [names[name] for name in self._outputs]
        saved = [names[name] for name in self._kept] + list(self.tensors.values())
        detached = [names[n] for n in self._outputs if n not in self.found.of]
        numbers = [names[name] for name in self._numbers] + ["tune"] * self._is_tuned
        like = dict.fromkeys(names[name] for name in (*self._unread, *self.found.of))
        calls = [f"{self._help('_like')}({name})" for name in like]
        lines = [
            *_definition(self.called.keep, ["ctx", "inputs", "output"]),
            f'{INDENT}"""Save what the gradients are worked out from."""',
            *statement(f"{_tuple(given)} = inputs", 1),
            *statement(f"{', '.join(outputs)} = output", 1),
            *statement(f"ctx.save_for_backward({', '.join(saved)})", 1),
        ]
        if numbers:
            lines += statement(f"ctx.numbers = {_tuple(numbers)}", 1)
        lines += statement(f"ctx.like = {_tuple(calls)}", 1)
        if detached:
            lines += statement(f"ctx.mark_non_differentiable({', '.join(detached)})", 1)
        lines += [f"{INDENT}ctx.set_materialize_grads(False)"]
        if "tune" in numbers and "tune" not in given:
            lines.insert(2, f"{INDENT}tune = True")
        return lines

    def _gradients(self) -> list[str]:
        names = self.backward.names
        tensors = {name: self._tensor(name) for name in self.tensors}
        kept = [names[name] for name in self._kept] + list(tensors.values())
        numbers = [names[name] for name in self._numbers] + ["tune"] * self._is_tuned
        incoming = [
            names[self.found.incoming[name]] if name in self.found.of else "_"
            for name in self._outputs
        ]
        absent = dict.fromkeys((*self._unread, *self.found.of))
        like = {
            name: self.backward.scope.name("like", name, wanted=f"{name}_like") for name in absent
        }
        lines = [
            *_definition(self.called.gradients, ["ctx", "*found"]),
            f'{INDENT}"""Return a gradient for each argument, None where none is asked for."""',
            *statement(f"{_tuple(incoming)} = found", 1),
        ]
        if kept:
            lines += statement(f"{_tuple(kept)} = ctx.saved_tensors", 1)
        if numbers:
            lines += statement(f"{_tuple(numbers)} = ctx.numbers", 1)
        lines += statement(f"{_tuple(list(like.values()))} = ctx.like", 1)
        for name in self._unread:
            lines += statement(f"{names[name]} = {self._help('_unread')}(*{like[name]})", 1)
        for output in self.found.of:
            name = names[self.found.incoming[output]]
            if output in self._outputs:
                lines += statement(f"if {name} is None:", 1)
            made = f"{name} = {self._help('_zeros')}(*{like[output]})"
            lines += statement(made, 1 + (output in self._outputs))
        lines += self._asked(names, tensors)
        return lines

    def _asked(self, names: dict[str, str], tensors: dict[str, str]) -> list[str]:
        """Return the statements that call the operator and hand out what it returns."""
        order = [*self.forward.parameters.names, *self.tensors]
        place = {name: number for number, name in enumerate(order)}
        inputs = {gradient: name for name, gradient in self.found.gradients.items()}
        gradients = self.backward.program.outputs
        needed = ", ".join(f"needed[{place[inputs[gradient]]}]" for gradient in gradients)
        passed = [names[name] for name in self.backward.parameters.names]
        passed += ["wanted"] + ["tune"] * self._is_tuned
        shown = [names[gradient] for gradient in gradients]
        lines = [
            f"{INDENT}needed = ctx.needs_input_grad",
            *statement(f"wanted = [{needed}]", 1),
            *statement(f"found = iter({self.called.backward}({', '.join(passed)}))", 1),
            *statement(f"{_tuple(shown)} = (next(found) if each else None for each in wanted)", 1),
        ]
        for name, tensor in tensors.items():
            gradient = names[self.found.gradients[name]]
            lines += statement(f"if {gradient} is not None:", 1)
            lines += statement(f"{gradient} = {gradient}.to({tensor}).reshape({tensor}.shape)", 2)
        arrays = {a.name for a in self.forward.parameters.arrays}
        returned = [
            names[self.found.gradients[name]]
            if name in self.found.gradients and (name in arrays or number >= len(arrays))
            else "None"
            for number, name in self._places(order)
        ] + ["None"] * len(self._options)
        return [*lines, *statement(f"return {', '.join(returned)}", 1)]

    def _places(self, order: Sequence[str]) -> Iterable[tuple[int, str]]:
        """Yield each argument's place among those that may have a gradient, and its name.

        A number has none at its own place; it has one where it stands again as a tensor.
        """
        plain = len(self.forward.parameters.names)
        arrays = {a.name for a in self.forward.parameters.arrays}
        for number, name in enumerate(order):
            yield (len(arrays) if number >= plain else 0), name

    def _tensor(self, name: str) -> str:
        return self.backward.scope.name(
            "tensor", name, wanted=f"{self.backward.names[name]}_tensor"
        )

    def _second(self) -> list[str]:
        text = (
            f"{self.called.launcher} has no second derivative: its backward pass is derived once. "
            "Call backward without create_graph=True"
        )
        called = self.called
        return [
            *_definition(called.second, ["ctx", "*found"]),
            *[f"{INDENT}raise RuntimeError("],
            *(
                f'{INDENT * 2}"{line[2:].rstrip()}"' if last else f'{INDENT * 2}"{line[2:]} "'
                for line, last in _pieces(text)
            ),
            f"{INDENT})",
            "",
            "",
            *statement(
                f"{called.forward}.register_autograd("
                f"{called.gradients}, setup_context={called.keep})",
                0,
            ),
            *statement(f"{called.backward}.register_autograd({called.second})", 0),
        ]

    # The differentiable function.

    def _launcher(self) -> list[str]:
        title = (
            f"{title_of(self.found.listing)} Differentiable: gradients come from "
            f"{self.backward.name}."
        )
        shown = replace(self.forward.program, outputs=self.found.listing.outputs)
        facts = replace(self.forward, program=shown, name=self.called.launcher, title=title)
        names = facts.names  # an argument may be called as the function is
        numbers = {p.name: "_number" for p in self.forward.parameters.reals}
        integers = (p.name for p in self.forward.parameters.integers)
        numbers |= {name: "_seed" for name in integers if self.forward.is_key(name)}
        arguments = [
            f'{self._help(numbers[name])}("{name}", {names[name]})'
            if name in numbers
            else names[name]
            for name in self.forward.parameters.names
        ]
        arguments += [f"{self._help('_handle')}({names[name]})" for name in self.tensors]
        arguments += self._options
        returned = self.found.listing.outputs
        targets = [names[name] if name in returned else "_" for name in self._outputs]
        call = f"{self.called.forward}({', '.join(arguments)})"
        head = Launcher(facts).head()
        if list(returned) == self._outputs:
            return [*head, *statement(f"return {call}", 1)]
        lines = statement(f"{', '.join(targets)} = {call}", 1)
        return [
            *head,
            *lines,
            *statement(f"return {', '.join(names[name] for name in returned)}", 1),
        ]

    def _help(self, name: str) -> str:
        self.helpers.add(name)
        self.helpers |= {"_real"} if name == "_number" else set()
        return name


_IN_A_SCHEMA = {
    "torch.Tensor": "Tensor",
    "torch.Tensor | None": "Tensor?",
    "float": "float",
    "int": "SymInt",
    "bool": "bool",
    "list[bool]": "bool[]",
    "list[torch.Tensor]": "Tensor[]",
}


def _schema(typed: Sequence[str], kind: str) -> list[str]:
    """Return what torch calls the arguments of an operator and what it returns, in ASCII.

    ["λ: float", "x: torch.Tensor"], "torch.Tensor"    ->    (float lamda, Tensor x) -> Tensor

    Returns:
        The parts of a string, each for a line of its own.
    """
    scope = Scope(())
    arguments = []
    for each in typed:
        name, _, of = each.partition(": ")
        arguments.append(f"{_IN_A_SCHEMA[of]} {scope.name(name, wanted=in_ascii(name))}")
    returned = _IN_A_SCHEMA.get(kind, kind.replace("torch.", "").replace("tuple[", "("))
    returned = returned.removesuffix("]") + ")" if returned.startswith("(") else returned
    lines = words(f"({', '.join(arguments)}) -> {returned}", COLUMNS - 2 * len(INDENT) - 3)
    return [*(f"{line} " for line in lines[:-1]), lines[-1]]


def _definition(name: str, arguments: Sequence[str], kind: str = "") -> list[str]:
    """Return the head of a definition."""
    arrow = f" -> {kind}" if kind else ""
    line = f"def {name}({', '.join(arguments)}){arrow}:"
    if fits(line, 0):
        return [line]
    return [f"def {name}(", *filled(list(arguments), 1, ended=False), f"){arrow}:"]


def _tuple(names: Sequence[str]) -> str:
    """Return names as what a tuple is taken apart into, or made of."""
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Return a text in lines of a source, and whether each is the last one."""
    lines = [line.strip() for line in heading(text, 3)]
    return [(line, number == len(lines) - 1) for number, line in enumerate(lines)]
