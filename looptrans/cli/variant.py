"""`looptrans variant`: an attention listing composed from options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from looptrans.cli.terminal import refused
from looptrans.cli.verb import Verbs, add_verb

EXAMPLES = """
looptrans variant --causal --window-left given --softcap 30
looptrans variant --heads grouped --bias HMN --lse --name biased > biased.py
looptrans variant --causal --alibi H | looptrans emit - --pass both
"""
DESCRIPTION = """
The listing is printed; whatever reads listings takes it, from a file or from standard input. A
number may be "given", which makes it an argument of the listing. Options that do not go together
are refused with the reason.
"""
NUMBERS = {"scale": float, "softcap": float, "window_left": int, "window_right": int}
HELP = {
    "batch": "with a dimension for batches (default: yes)",
    "heads": "none, or keys have as many as queries (equal, the default), one for several, or one",
    "layout": "Q[b, h, i, e] (bhsd, the default), Q[b, i, h, e], one QKV, or sequences packed",
    "weights": "what V is summed with (default: softmax)",
    "differential": "subtract lam times the weights of a second Q2 and K2",
    "scale": "what Q . K is multiplied by (default: 1 / sqrt(E))",
    "softcap": "scores become c * tanh(score / c), with this c",
    "bias": "add an array, its axes of BHMN: HMN is bias[h, i, j]",
    "relative": "add relative[h, i - j + N - 1]",
    "alibi": "subtract slopes[h], or slopes[b, h], times the distance",
    "causal": "hide the keys right of the one a query is level with",
    "window_left": "how many keys left of that one are seen",
    "window_right": "how many keys right of it",
    "alignment": "whether the first queries and keys are level, or the last (default: the first)",
    "prefix": "show the first prefix[b] keys all the same",
    "documents": "hide keys of other documents, doc_q[b, i] != doc_k[b, j]",
    "mask": "an array of truth values, axes as for --bias: False hides a key",
    "sinks": "one more score for each head, sinks[h], that has a weight and no value",
    "pages": "keys and values in pages, found by page[b, j // PAGE]",
    "q_lengths": "batch b has n_q[b] queries",
    "kv_lengths": "batch b has n_kv[b] keys",
    "dropout": "weights are dropped where keep[b, h, i, j] is False, or by uniform(seed, ...) < p",
    "lse": "return the log-sum-exp of each row too",
}


def add_variant(verbs: Verbs) -> None:
    """Add the verb."""
    from looptrans.variants.conflicts import CHOICES
    from looptrans.variants.options import Options

    parser = add_verb(
        verbs,
        "variant",
        variant,
        summary="print an attention listing composed from options",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    parser.add_argument("--name", default="attention", help="what the function is called")
    for field in fields(Options):
        flag, about = f"--{field.name.replace('_', '-')}", HELP[field.name]
        if field.default is True:
            parser.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=True, help=about
            )
        elif field.default is False:
            parser.add_argument(flag, action="store_true", help=about)
        elif field.name in NUMBERS:
            number = _number(NUMBERS[field.name])
            parser.add_argument(flag, type=number, metavar="NUMBER|given", help=about)
        elif field.name in CHOICES:
            known = [choice for choice in CHOICES[field.name] if choice is not None]
            parser.add_argument(flag, choices=known, default=field.default, help=about)
        else:
            parser.add_argument(flag, metavar="AXES", help=about)


def variant(arguments: argparse.Namespace) -> int:
    """Print the listing; 2 where options do not go together."""
    from looptrans.variants import Conflict, Options, compose

    values = {field.name: getattr(arguments, field.name) for field in fields(Options)}
    try:
        print(compose(Options(**values), arguments.name).text, end="")
    except Conflict as conflict:
        return refused(conflict, _remedy(conflict.options, values))
    return 0


def _remedy(names: tuple[str, ...], values: Mapping[str, object]) -> str:
    """Return what to do about options that disagree: some are there, others are missing."""
    from looptrans.variants.options import Options

    defaults = {field.name: field.default for field in fields(Options)}
    flags = {
        name: f"--{'no-' * (defaults[name] is True)}{name.replace('_', '-')}" for name in names
    }
    given = [flags[name] for name in names if values[name] != defaults[name]]
    missing = [flags[name] for name in names if values[name] == defaults[name]]
    ways = [f"leave {' or '.join(given)} away, or choose another value"] if given else []
    if not names:
        return "give another --name"
    return ", or ".join([*ways, *(f"give {flag}" for flag in missing)])


def _number(kind: type[float] | type[int]) -> Any:
    def read(text: str) -> float | int | str:
        return text if text == "given" else kind(text)

    read.__name__ = "number"
    return read
