"""What the parts of a launcher's text have to know about the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from looptrans.blocks.block_ir.expr import Call, Scalar, walk
from looptrans.blocks.block_ir.ops import exprs_of, ops_in
from looptrans.blocks.block_ir.program import BlockProgram, Filled
from looptrans.emit.configurations import Configurations
from looptrans.emit.identifiers import AUTOGRAD_WORDS, LAUNCHER_WORDS, Scope
from looptrans.emit.kernel import KernelText
from looptrans.emit.needs import Needs
from looptrans.emit.parameters import Parameters, launcher_parameters
from looptrans.emit.python_text import arrays_in
from looptrans.ir.program import Array, Contract

Style: TypeAlias = Literal["plain", "forward", "backward"]


@dataclass(slots=True)
class Facts:
    """A program, and the names of things in its launcher.

    Attributes:
        program: The program.
        name: What the module calls the launcher.
        kernels: The texts of its kernels, in order.
        configurations: Their configurations.
        style: What kind of launcher it is: one for a module of its own; one that returns a tuple of
            all that a backward pass needs; or one of gradients, of which some may not be wanted.
        title: The first sentence of its docstring, or None: that of the listing.
        needs: Which gradients everything serves, where it is one of gradients.
        typed: Arguments with an element type of their own, which are taken in that of the inputs.
        helpers: The functions the text calls, filled while it is written.
        scope: The identifiers of the launcher.
        parameters: What it is called with.
        names: What it calls arguments, sizes and the arrays it makes.
    """

    program: BlockProgram
    name: str
    kernels: Sequence[KernelText]
    configurations: Sequence[Configurations]
    style: Style = "plain"
    title: str | None = None
    needs: Needs | None = None
    typed: Mapping[str, str] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    scope: Scope = field(init=False)
    parameters: Parameters = field(init=False)
    names: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        taken = [self.name, *(text.name for text in self.kernels)]
        for configuration in self.configurations:
            taken += [configuration.default, *filter(None, [configuration.tuned])]
        words = LAUNCHER_WORDS if self.style == "plain" else (*LAUNCHER_WORDS, *AUTOGRAD_WORDS)
        self.scope = Scope((*words, *taken))
        self.parameters = launcher_parameters(self.program)
        order = (
            *self.parameters.names,
            *(step.name for step in self.parameters.sizes),
            *(made.array for made in self.program.made),
        )
        self.names = {name: self.scope.name("value", name, wanted=name) for name in order}

    @property
    def made(self) -> dict[str, Filled]:
        """The arrays the launcher makes, by name."""
        return {made.array: made for made in self.program.made}

    @property
    def given(self) -> list[str]:
        """The outputs that `out` is for: those that are no arguments, in order."""
        if self.style != "plain":
            return []
        return [name for name in dict.fromkeys(self.program.outputs) if name in self.made]

    @property
    def sample(self) -> str | None:
        """A tensor whose dtype is that of the float outputs."""
        floats = [a for a in self.parameters.arrays if a.element == "float" and not self.fixed(a)]
        return self.names[floats[0].name] if floats else None

    def is_key(self, name: str) -> bool:
        """Tell whether an integer is a key of random numbers, and no number besides.

        Of a key only the bits matter, so that one beyond 63 of them may be taken as signed.
        """
        keys = uses = 0
        for kernel in self.program.kernels:
            parts = [p for op in ops_in(kernel.body) for e in exprs_of(op) for p in walk(e)]
            calls = (p for p in parts if isinstance(p, Call) and p.function == "uniform")
            keys += sum(call.arguments[0] == Scalar(name) for call in calls)
            uses += sum(part == Scalar(name) for part in parts)
        return 0 < keys == uses

    def fixed(self, array: Array) -> str | None:
        """Return the element type the listing asks for in an argument."""
        for kernel in self.program.kernels:
            for argument in kernel.arrays:
                if argument.name == array.name and argument.dtype is not None:
                    return argument.dtype
        return array.stated

    @property
    def written(self) -> list[str]:
        """The arguments that are changed."""
        return [
            array.name
            for array in self.parameters.arrays
            if any(
                argument.name == array.name and argument.access != "in"
                for kernel in self.program.kernels
                for argument in kernel.arrays
            )
        ]

    @property
    def contracts(self) -> list[Contract]:
        """What is assumed, each once: the listing's contracts and the lowering's assumptions."""
        stated = list(self.program.listing.contracts)
        known = [contract.condition for contract in stated if not contract.generators]
        extra = [c for c in dict.fromkeys(self.program.assumptions) if c not in known]
        return stated + [Contract(condition) for condition in extra]

    def about_contents(self) -> list[Contract]:
        """Return what is assumed of the elements of integer arrays."""
        return [c for c in self.contracts if c.generators or arrays_in(c.condition)]

    @property
    def ranged(self) -> list[Array]:
        """The integer arrays whose values have a declared range."""
        return [array for array in self.parameters.arrays if array.value_range is not None]

    @property
    def has_check(self) -> bool:
        """Whether the launcher can look into arrays of integers, with `check=True`."""
        return bool(self.ranged or self.about_contents())

    def may_be_none(self, array: str) -> bool:
        """Tell whether the launcher leaves an array out where no wanted gradient needs it."""
        return self.needs is not None and array in self.made and self.needs.is_optional(array)

    def call(self, function: str, *arguments: str) -> str:
        """Return a call of a function that the module then has to define."""
        self.helpers.add(function)
        return f"{function}({', '.join(arguments)})"

    def rank(self, array: str) -> int:
        """Return the number of dimensions of an array."""
        if array in self.made:
            return len(self.made[array].shape)
        return next(a.rank for a in self.parameters.arrays if a.name == array)

    def device(self) -> str:
        """Return where the arrays are, as text."""
        if self.parameters.arrays:
            return f"{self.names[self.parameters.arrays[0].name]}.device"
        index = "torch.cuda.current_device()"
        return f'torch.device("cpu") if _INTERPRETED else torch.device("cuda", {index})'
