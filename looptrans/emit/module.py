"""A block program as the text of a Python module that needs only torch and triton."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from looptrans.blocks.program import BlockProgram, Kernel
from looptrans.emit.arguments import Argument
from looptrans.emit.configurations import Configurations
from looptrans.emit.facts import Facts
from looptrans.emit.functions import HELPERS
from looptrans.emit.header import header
from looptrans.emit.identifiers import MODULE_WORDS, Scope, identifier
from looptrans.emit.kernel import KernelText, kernel_text
from looptrans.emit.launcher import Launcher
from looptrans.emit.parameters import Parameters, launcher_parameters
from looptrans.emit.runtime_text import ELEMENT_TYPES, FUNCTIONS, INTERPRETED

_OWN = (*MODULE_WORDS, "itertools", *HELPERS, *FUNCTIONS, "_INTERPRETED", "_FLOAT", "_INT", "_BOOL")


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


def names(program: BlockProgram) -> Names:
    """Return what the module of a program calls its launcher and its kernels."""
    scope = Scope(_OWN)
    launcher = scope.name("launcher", wanted=program.listing.name)
    kernels = tuple(scope.name("kernel", k.name, wanted=k.name) for k in program.kernels)
    return Names(identifier(program.listing.name), launcher, kernels)


def signature(kernel: Kernel) -> tuple[Argument, ...]:
    """Return the arguments of the emitted kernel, in order."""
    return kernel_text(kernel, kernel.name).arguments


def taken(kernel: Kernel) -> frozenset[str]:
    """Return every identifier that is in use in the emitted kernel."""
    return kernel_text(kernel, kernel.name).identifiers


def parameters(program: BlockProgram) -> Parameters:
    """Return what the launcher of a program is called with."""
    return launcher_parameters(program)


def module(program: BlockProgram, *, version: str) -> str:
    """Return the text of a program's module.

    Args:
        program: The program.
        version: The version of looptrans, for the header.

    Raises:
        ValueError: The program is not one that the block IR allows.
    """
    called = names(program)
    scope = Scope((*_OWN, called.launcher, *called.kernels))
    texts = [kernel_text(k, name) for k, name in zip(program.kernels, called.kernels, strict=True)]
    configurations = [
        Configurations(kernel, text, scope)
        for kernel, text in zip(program.kernels, texts, strict=True)
    ]
    facts = Facts(program, called.launcher, texts, configurations)
    launch = Launcher(facts).lines()
    parts = [helper.rstrip("\n").split("\n") for helper in _helpers(texts)]
    for text, configuration in zip(texts, configurations, strict=True):
        parts += [list(text.lines), configuration.lines()]
    below = [line for part in (*parts, launch) for line in part]
    constants, functions = _runtime(facts.helpers, texts, below)
    parts += [constants] if constants else []
    parts += functions
    parts.append(launch)
    imports = ["import torch", "import triton", "import triton.language as tl"]
    if any("itertools." in line for line in below):
        imports = ["import itertools", "", *imports]
    lines = [*header(program, version), "", *_waived([*below, *imports]), *imports]
    for part in parts:
        lines += ["", "", *part]
    return "\n".join(line.rstrip() for line in lines) + "\n"


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
