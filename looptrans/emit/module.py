"""A block program as the text of a Python module that needs only torch and triton."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from looptrans.blocks.block_ir.program import BlockProgram, Kernel
from looptrans.blocks.passes.described import without_described
from looptrans.emit.arguments import Argument
from looptrans.emit.configurations import Configurations
from looptrans.emit.facts import Facts, Style
from looptrans.emit.functions import HELPERS
from looptrans.emit.header import header
from looptrans.emit.identifiers import MODULE_WORDS, Scope, identifier, in_ascii
from looptrans.emit.kernel import KernelText, kernel_text
from looptrans.emit.launcher import Launcher
from looptrans.emit.needs import needs_of
from looptrans.emit.runtime_text import ELEMENT_TYPES, FITTING, FUNCTIONS, INTERPRETED
from looptrans.emit.together import together

# What of Python's own a module imports, by what it then calls.
_STANDARD = {
    "itertools.": "import itertools",
    "ThreadPoolExecutor(": "from concurrent.futures import ThreadPoolExecutor",
    "copy_context(": "from contextvars import copy_context",
}


@dataclass(frozen=True, slots=True)
class Names:
    """What a module calls the things in it.

    Attributes:
        file: The name of its file, without `.py`.
        launcher: The launcher.
        kernels: The kernels, in order.
    """

    file: str
    launcher: str
    kernels: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """The launcher and the kernels."""
        return (self.launcher, *self.kernels)


def names(program: BlockProgram) -> Names:
    """Return what the module of a program calls its launcher and its kernels."""
    scope = Scope(MODULE_WORDS)
    launcher = scope.name("launcher", wanted=program.listing.name)
    kernels = tuple(scope.name("kernel", k.name, wanted=in_ascii(k.name)) for k in program.kernels)
    return Names(identifier(program.listing.name), launcher, kernels)


def signature(kernel: Kernel) -> tuple[Argument, ...]:
    """Return the arguments of the emitted kernel, in order."""
    return kernel_text(kernel, kernel.name).arguments


def taken(kernel: Kernel) -> frozenset[str]:
    """Return every identifier that is in use in the emitted kernel."""
    return kernel_text(kernel, kernel.name).identifiers


def module(program: BlockProgram, *, version: str) -> str:
    """Return the text of a program's module.

    Args:
        program: The program.
        version: The version of looptrans, for the header.

    Raises:
        ValueError: The program is not one that the block IR allows.
    """
    called = names(program)
    part = Part(program, called.launcher, called.kernels, Scope((*MODULE_WORDS, *called.all)))
    launch = Launcher(part.facts).lines()
    return written(header(program, version), (part,), [launch], ())


class Part:
    """One of the programs of a module: its kernels, and what its launcher has to know.

    Attributes:
        facts: The program, and what the parts of its launcher's text have to know.
        roles: For each launch, the kernels that share it; none where it has one alone.
    """

    def __init__(
        self,
        program: BlockProgram,
        launcher: str,
        kernels: Sequence[str],
        scope: Scope,
        *,
        style: Style = "plain",
        groups: Sequence[Sequence[int]] | None = None,
        title: str | None = None,
        typed: Mapping[str, str] | None = None,
    ) -> None:
        """Print the kernels.

        Args:
            program: The program.
            launcher: What its launcher is called.
            kernels: What its kernels are called.
            scope: The identifiers of the module.
            style: What kind of launcher it has.
            groups: Which kernels share a launch, or None: each has one of its own.
            title: The first sentence of its docstring, or None: that of the listing.
            typed: Arguments that have an element type of their own; see `Facts`.
        """
        groups = groups or [(number,) for number in range(len(program.kernels))]
        needs = needs_of(program, groups) if style == "backward" else None
        texts: list[KernelText] = []
        configurations = []
        self.roles: list[list[KernelText]] = []
        for place, group in enumerate(groups):
            optional = needs.optional[place] if needs else frozenset[str]()
            several = len(group) > 1
            own = [program.kernels[k] for k in group]
            own = [without_described(kernel) for kernel in own] if several else own
            roles = [
                kernel_text(each, kernels[k], optional, is_role=several)
                for each, k in zip(own, group, strict=True)
            ]
            kernel, text = own[0], roles[0]
            if several:
                first = text.name.removesuffix("_kernel")
                other = roles[1].name.removeprefix(f"{in_ascii(identifier(program.listing.name))}_")
                name = scope.name("kernel", text.name, wanted=f"{first}_and_{other}")
                kernel, text = together(own, roles, name)
            self.roles.append(roles if several else [])
            texts.append(text)
            configurations.append(Configurations(kernel, text, scope))
        self.facts = Facts(
            program, launcher, texts, configurations, style, title, needs, typed or {}
        )

    @property
    def texts(self) -> list[KernelText]:
        """The texts of all kernels, those that others call before them."""
        pairs = zip(self.roles, self.facts.kernels, strict=True)
        return [each for roles, text in pairs for each in (*roles, text)]

    def definitions(self) -> list[list[str]]:
        """Return the definitions of the kernels and of their configurations."""
        found = []
        triples = zip(self.roles, self.facts.kernels, self.facts.configurations, strict=True)
        for roles, text, configuration in triples:
            found += [list(each.lines) for each in (*roles, text)]
            found.append(configuration.lines())
        return found


def written(
    head: list[str], parts: Sequence[Part], below: list[list[str]], helpers: Iterable[str]
) -> str:
    """Return the text of a module.

    Args:
        head: Its header, as comment lines.
        parts: The programs in it.
        below: What stands below the kernels: launchers, and what uses them.
        helpers: Functions of `runtime_text` that `below` calls, beside those of the launchers.
    """
    texts = [text for part in parts for text in part.texts]
    body = [helper.rstrip("\n").split("\n") for helper in _helpers(texts)]
    chosen = {name for part in parts for c in part.facts.configurations for name in c.helpers}
    fitting = [FITTING[name].rstrip("\n").split("\n") for name in FITTING if name in chosen]
    body += fitting
    body += [lines for part in parts for lines in part.definitions()]
    lines = [line for part in (*body, *below) for line in part]
    called = set(helpers).union(*(part.facts.helpers for part in parts))
    constants, functions = _runtime(called, texts, lines)
    body += [constants] if constants else []
    body += functions
    body += below
    imports = ["import torch", "import triton", "import triton.language as tl"]
    standard = [text for name, text in _STANDARD.items() if any(name in line for line in lines)]
    imports = [*standard, "", *imports] if standard else imports
    text = [*head, "", *_waived([*lines, *imports]), *imports]
    for each in body:
        text += ["", "", *each]
    return "\n".join(line.rstrip() for line in text) + "\n"


def _waived(lines: list[str]) -> list[str]:
    """Return what tells a linter that a name such as `l` is meant: it is the listing's."""
    ambiguous = any(re.search(r"^ +([lOI]|.*, [lOI]|[lOI],.*) [*+]?= ", line) for line in lines)
    return ["# ruff: noqa: E741", ""] if ambiguous else []


def _helpers(texts: Iterable[KernelText]) -> list[str]:
    wanted = {helper for text in texts for helper in text.helpers}
    return [text for name, text in HELPERS.items() if name in wanted]


def _runtime(
    helpers: set[str], texts: list[KernelText], below: list[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the constants and the functions that the launcher needs, in order."""
    functions = [FUNCTIONS[name].rstrip("\n").split("\n") for name in FUNCTIONS if name in helpers]
    everything = "\n".join([*below, *(line for part in functions for line in part)])
    constants: list[str] = []
    if "_INTERPRETED" in everything:
        constants += INTERPRETED.format(kernel=texts[0].name).rstrip("\n").split("\n")
    words = everything.replace(",", " ").replace(")", " ").split()
    constants += [line for line in ELEMENT_TYPES.values() if line.split()[0] in words]
    return constants, functions
