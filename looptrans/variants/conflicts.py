"""Which options do not go together, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from math import isfinite
from numbers import Integral, Real
from typing import get_args

from looptrans.variants.options import GIVEN, Alignment, Dropout, Heads, Layout, Options, Weights


class Conflict(ValueError):
    """Options that no listing can be written for.

    Attributes:
        options: The names of the options that disagree; one where it disagrees with itself.
        reason: Why.
    """

    def __init__(self, options: tuple[str, ...], shown: str, reason: str) -> None:
        super().__init__(f"{shown}: {reason}")
        self.options = options
        self.reason = reason


CHOICES = {
    "heads": get_args(Heads),
    "layout": get_args(Layout),
    "weights": get_args(Weights),
    "alignment": get_args(Alignment),
    "dropout": (None, *get_args(Dropout)),
    "alibi": (None, "H", "BH"),
}
_AXES = {"bias": "bias", "mask": "mask", "alibi": "slopes"}


def require_legal(options: Options) -> None:
    """Require that options go together.

    Raises:
        Conflict: They do not; the message names the first two that disagree.
    """
    for found in _alone(options):
        raise found
    for first, second, reason in _pairs(options):
        names = tuple(name for name in (first, second) if name)
        shown = " and ".join(f"{name}={getattr(options, name)!r}" for name in names)
        verb = " do not go together" if len(names) > 1 else " is not possible"
        raise Conflict(names, shown + verb, reason)


def _alone(options: Options) -> Iterator[Conflict]:
    """Yield the values that an option does not have."""

    def wrong(name: str, reason: str) -> Conflict:
        return Conflict((name,), f"{name}={getattr(options, name)!r}", reason)

    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(field.default, bool) and not isinstance(value, bool):
            yield wrong(field.name, "it is True or False")
    for name, choices in CHOICES.items():
        if getattr(options, name) not in choices:
            known = ", ".join(repr(choice) for choice in choices)
            yield wrong(name, f"it is one of {known}")
    for name in ("bias", "mask"):
        axes = getattr(options, name)
        if axes is None:
            continue
        if not isinstance(axes, str) or not axes or not _is_ordered(axes):
            yield wrong(name, 'its axes are some of "BHMN", each once and in this order')
    for name in ("window_left", "window_right"):
        value = getattr(options, name)
        if value is None or (isinstance(value, str) and value == GIVEN):
            continue
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_whole or not 0 <= int(value) < 1 << 31:
            yield wrong(
                name, "it is a number of keys, 0 or more, below 2**31; None is without a bound"
            )
    for name in ("scale", "softcap"):
        value = getattr(options, name)
        if value is None or (isinstance(value, str) and value == GIVEN):
            continue
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not _is_finite(value):
            yield wrong(name, "it is a finite number")
        elif name == "softcap" and value <= 0:
            yield wrong(name, "scores lie between -softcap and softcap, so it is greater than 0")


def _is_finite(value: Real) -> bool:
    try:
        return isfinite(float(value))
    except OverflowError:  # an integer beyond all of them
        return False


def _is_ordered(axes: str) -> bool:
    places = ["BHMN".find(axis) for axis in axes]
    return -1 not in places and sorted(set(places)) == places


def _pairs(options: Options) -> Iterator[tuple[str, str, str]]:
    """Yield pairs of options that disagree; the second name is empty for one alone."""
    o = options
    has_diagonal = (
        o.causal
        or o.window_left is not None
        or o.window_right is not None
        or o.alibi is not None
        or o.weights == "retention"
    )
    if o.causal and o.window_right is not None:
        yield "causal", "window_right", "causal is a window of 0 keys to the right; give one"
    if o.window_right == 0:
        yield "window_right", "", "that is causal=True"
    if o.alignment != "top_left" and not has_diagonal:
        yield "alignment", "", "no option asks which key a query is level with"
    if o.prefix and not o.causal and o.window_left is None and o.window_right is None:
        reason = "without a causal mask or a window all keys are seen in any case"
        yield "prefix", "causal", reason
    yield from _heads_and_batch(o)
    yield from _weights(o)
    yield from _pages(o)
    yield from _layout(o)


def _heads_and_batch(o: Options) -> Iterator[tuple[str, str, str]]:
    for name, what in _AXES.items():
        axes = getattr(o, name) or ""
        if "B" in axes and not o.batch:
            yield name, "batch", f"there are no batches that the {what} could differ in"
        if "H" in axes and o.heads == "none":
            yield name, "heads", f"there are no heads that the {what} could differ in"
    for name in ("q_lengths", "kv_lengths"):
        if getattr(o, name) and not o.batch:
            yield name, "batch", "without batches the length is the size of the array"


def _weights(o: Options) -> Iterator[tuple[str, str, str]]:
    if o.weights != "softmax":
        if o.sinks:
            yield "sinks", "weights", "a sink takes its share of a sum that only a softmax has"
        if o.lse:
            yield "lse", "weights", "only a softmax has a log-sum-exp"
    if o.weights == "retention":
        if not o.causal:
            yield "weights", "causal", "the decay would grow to the right of the query"
        if o.prefix:
            yield "prefix", "weights", "the decay would grow to the right of the query"
        if o.alibi is not None:
            yield "alibi", "weights", "the decay is the one way retention weighs distance"
    if o.lse and o.differential:
        yield "lse", "differential", "there are two softmaxes, each with a log-sum-exp of its own"


def _pages(o: Options) -> Iterator[tuple[str, str, str]]:
    if not o.pages:
        return
    if not o.batch:
        yield "pages", "batch", "the pages of a batch are those that page[b] names"
    if o.layout == "qkv":
        yield "pages", "layout", "in one array keys lie where queries do"
    if o.layout == "packed" and not o.kv_lengths:
        yield "pages", "kv_lengths", "how many keys a packed sequence has in its pages is not said"


def _layout(o: Options) -> Iterator[tuple[str, str, str]]:
    if o.layout == "qkv":
        if o.heads in ("grouped", "shared"):
            yield "heads", "layout", "in one array Q, K and V have the same number of heads"
        if o.differential:
            yield "differential", "layout", "the array has no place for Q2 and K2"
        if o.alignment != "top_left" and not (o.q_lengths or o.kv_lengths):
            yield "alignment", "layout", "in one array there are as many queries as keys"
    if o.layout != "packed":
        return
    if not o.batch:
        yield "batch", "layout", "without batches there is nothing to pack"
    for name in ("q_lengths", "kv_lengths"):
        if getattr(o, name) and not (name == "kv_lengths" and o.pages):
            yield name, "layout", "cu_q and cu_k say how long the sequences are"
    for name in ("bias", "mask"):
        axes = getattr(o, name) or ""
        if "M" in axes or "N" in axes:
            yield name, "layout", "there is no one shape of queries by keys to index"
    if o.relative:
        yield "relative", "layout", "the table has M + N - 1 entries, and M and N vary"
    if o.dropout == "mask":
        yield "dropout", "layout", "there is no one shape of queries by keys to index"
