"""Identifiers of an emitted module: those of the listing, made safe.

A listing may call an array `tl` or a size `pid`. Each scope of the emitted text (the module, a
kernel, a launcher) knows which identifiers are taken, and gives each thing that needs a name the
one asked for, with `_` appended until it is free. What is asked for first is served first, so a
name depends on the order of appearance alone.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable

from looptrans.emit.functions import HELPERS
from looptrans.emit.runtime_text import FITTING, FUNCTIONS

# What an emitted module calls its own, imports and helpers, whatever the listing is.
MODULE_WORDS = (
    *("torch", "triton", "tl", "math", "itertools", "ThreadPoolExecutor", "copy_context"),
    *(*HELPERS, *FITTING, *FUNCTIONS, "_parts", "_processors"),
    *("_INTERPRETED", "_FLOAT", "_INT", "_BOOL"),
)
# What Triton's launch of a kernel takes by name besides its parameters, or calls its own.
LAUNCH_WORDS = (
    *("self", "grid", "warmup", "config", "options", "params", "specialization", "backend"),
    *("specialize_impl", "num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion"),
    *("debug", "instrumentation_mode", "fpsan_homomorphic_casts", "sanitize_overflow", "arch"),
    *("backend_name", "warp_size", "ptx_version", "ptx_options", "ir_override", "sched4reg"),
    *("enable_reflect_ftz", "launch_cooperative_grid", "launch_pdl", "clc", "extern_libs"),
    *("supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes", "default_dot_input_precision"),
    *("allowed_dot_input_precisions", "max_num_imprecise_acc_default", "min_shared_mem"),
    *("waves_per_eu", "matrix_instr_nonkdim", "kpack", "allow_flush_denorm", "schedule_hint"),
    *("llvm_fn_attrs", "cluster_dims"),
)
# What a kernel calls its own, and what a launch of one takes besides its parameters.
KERNEL_WORDS = (*MODULE_WORDS, "pid", "INDEX", *LAUNCH_WORDS)
# What a launcher calls its own.
LAUNCHER_WORDS = (
    *MODULE_WORDS,
    *("out", "tune", "check", "grid", "meta", "run", "blocks", "lanes", "index", "width"),
)
# What functions around a launcher call their own, and a launcher of gradients.
AUTOGRAD_WORDS = ("wanted", "needed", "each", "ctx", "inputs", "output", "found")

_PYTHON_WORDS = frozenset((*keyword.kwlist, *keyword.softkwlist, *dir(builtins)))
_NOT_IN_A_WORD = re.compile(r"\W")


class Scope:
    """The identifiers of one scope.

    Attributes:
        taken: Every identifier that is in use.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.taken: set[str] = {*_PYTHON_WORDS, *words}
        self._given: dict[tuple[str, ...], str] = {}

    def name(self, *key: str, wanted: str) -> str:
        """Return the identifier of the thing `key` stands for, chosen when it is first asked for.

        Args:
            key: What it is, e.g. `"array", "Q"`.
            wanted: What it would be called if nothing else were.
        """
        if key not in self._given:
            found = identifier(wanted)
            while found in self.taken:
                found += "_"
            self.taken.add(found)
            self._given[key] = found
        return self._given[key]


def identifier(name: str) -> str:
    """Return a name of a listing as an identifier: `self.N` is `self_N`."""
    return _NOT_IN_A_WORD.sub("_", name)


def in_ascii(name: str) -> str:
    """Return an identifier in ASCII, as Triton asks of kernels and torch of operators.

    `dλ_kernel` is `dlamda_kernel`, by the last word of the letter's name in Unicode.
    """
    return "".join(map(_letter_in_ascii, unicodedata.normalize("NFKD", name)))


def _letter_in_ascii(letter: str) -> str:
    if letter.isascii():
        return letter
    if unicodedata.combining(letter):
        return ""
    word = unicodedata.name(letter, "").rpartition(" ")[2].lower()
    return word if word.isascii() and word.isalpha() else f"u{ord(letter):x}"
