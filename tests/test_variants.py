"""Listings composed from options: what they say, which are refused, and that they are right.

Every pair of option values that can be had together occurs in one of the combinations of
`tests.pairwise`; emitted kernels of both passes are compared with the listing's own execution.
LOOPTRANS_TEST_ALL=1 takes all of them, the others take those that are quick.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import fields
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.blocks.block_ir.ops import has_products  # noqa: E402
from looptrans.cli.main import main  # noqa: E402
from looptrans.cli.variant import HELP  # noqa: E402
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import emitted  # noqa: E402
from looptrans.executor import execute  # noqa: E402
from looptrans.frontend import parse  # noqa: E402
from looptrans.ir.source import Source  # noqa: E402
from looptrans.runtime.running.device import prepare_device  # noqa: E402
from looptrans.runtime.verifying import backward as verifying  # noqa: E402
from looptrans.runtime.verifying.backward import gradient_launcher, verify_gradients  # noqa: E402
from looptrans.runtime.verifying.sizes import SizeSet  # noqa: E402
from looptrans.variants import GIVEN, Conflict, Options, compose  # noqa: E402
from tests.pairwise import VALUES, covering, pairs_of  # noqa: E402

ALL = "LOOPTRANS_TEST_ALL" in os.environ
SPECS = Path(__file__).parent.parent / "specs"
SIZES = {"B": 2, "H": 2, "G": 1, "R": 2, "M": 5, "N": 7, "E": 3, "D": 2, "PAGE": 2}
COMBINATIONS, PAIRS = covering()

# The listings of specs/ that are what the composer writes.
COMPOSED = {
    "attention_window": Options(window_left=GIVEN, window_right=GIVEN, lse=True),
    "attention_window_left": Options(causal=True, window_left=GIVEN, lse=True),
    "attention_prefix": Options(causal=True, prefix=True, lse=True),
    "attention_alibi": Options(causal=True, alibi="H", lse=True),
    "attention_relative": Options(relative=True, lse=True),
    "attention_softcap": Options(softcap=GIVEN, lse=True),
    "attention_sinks": Options(causal=True, window_left=GIVEN, sinks=True, lse=True),
    "attention_mqa": Options(heads="shared", lse=True),
    "attention_retention": Options(weights="retention", causal=True),
    "attention_sigmoid": Options(weights="sigmoid", bias="H"),
    "attention_differential": Options(differential=True),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_a_listing_of_specs_is_what_is_composed(name: str) -> None:
    assert (SPECS / f"{name}.py").read_text("utf-8") == compose(COMPOSED[name], name).text


def test_every_combination_is_a_listing() -> None:
    for options in COMBINATIONS:
        made = compose(options)
        program = parse(Source("composed.py", made.text))
        named = {a.name for a in program.arrays if a.role == "input"} | {
            p.name for p in program.parameters
        }
        assert set(made.arguments) <= named
        assert program.outputs == made.outputs


def test_every_pair_that_can_be_had_occurs() -> None:
    seen = set().union(*(pairs_of(options) for options in COMBINATIONS))
    assert seen == PAIRS
    possible = sum(len(VALUES[a]) * len(VALUES[b]) - 1 for a, b in combinations(VALUES, 2))
    assert len(PAIRS) > 0.85 * possible
    assert len(COMBINATIONS) >= 40


CONFLICTS = [
    ({"causal": True, "window_right": 3}, ("causal", "window_right")),
    ({"window_right": 0}, ("window_right",)),
    ({"window_left": -1}, ("window_left",)),
    ({"window_left": 1 << 31}, ("window_left",)),
    ({"sinks": True, "weights": "sigmoid"}, ("sinks", "weights")),
    ({"lse": True, "weights": "retention", "causal": True}, ("lse", "weights")),
    ({"weights": "retention"}, ("weights", "causal")),
    ({"weights": "retention", "causal": True, "prefix": True}, ("prefix", "weights")),
    ({"differential": True, "lse": True}, ("lse", "differential")),
    ({"alibi": "H", "heads": "none"}, ("alibi", "heads")),
    ({"bias": "BMN", "batch": False}, ("bias", "batch")),
    ({"bias": "NM"}, ("bias",)),
    ({"kv_lengths": True, "batch": False}, ("kv_lengths", "batch")),
    ({"heads": "grouped", "layout": "qkv"}, ("heads", "layout")),
    ({"alignment": "bottom_right"}, ("alignment",)),
    ({"alignment": "bottom_right", "causal": True, "layout": "qkv"}, ("alignment", "layout")),
    ({"prefix": True}, ("prefix", "causal")),
    ({"layout": "packed", "mask": "MN"}, ("mask", "layout")),
    ({"layout": "packed", "pages": True}, ("pages", "kv_lengths")),
    ({"layout": "packed", "kv_lengths": True}, ("kv_lengths", "layout")),
    ({"layout": "qkv", "pages": True}, ("pages", "layout")),
    ({"batch": False, "pages": True}, ("pages", "batch")),
    ({"softcap": 0.0}, ("softcap",)),
    ({"heads": "two"}, ("heads",)),
    ({"heads": ["equal"]}, ("heads",)),
    ({"bias": ["B"]}, ("bias",)),
    ({"scale": 10**400}, ("scale",)),
    ({"scale": float("nan")}, ("scale",)),
    ({"scale": np.zeros(2)}, ("scale",)),
    ({"window_left": True}, ("window_left",)),
]


@pytest.mark.parametrize(("values", "names"), CONFLICTS)
def test_options_that_do_not_go_together(values: dict[str, object], names: tuple[str, ...]) -> None:
    with pytest.raises(Conflict) as caught:
        compose(Options(**values))  # type: ignore[arg-type]  # wrong ones too
    assert caught.value.options == names
    assert all(name in str(caught.value) for name in names)
    assert caught.value.reason


def test_numbers_of_numpy_are_numbers() -> None:
    given = Options(causal=True, window_left=np.int64(3), softcap=np.float32(0.5))  # type: ignore[arg-type]
    assert compose(given).text == compose(Options(causal=True, window_left=3, softcap=0.5)).text


def test_lengths_in_one_array_may_be_level_at_their_ends() -> None:
    """There are as many queries as keys in one array, and not in a batch of it."""
    options = Options(layout="qkv", kv_lengths=True, causal=True, alignment="bottom_right")
    assert "min(n_kv[b], i + n_kv[b] - N + 1)" in compose(options).text


def shown(options: Options) -> str:
    default = Options()
    names = [
        field.name
        for field in fields(options)
        if getattr(options, field.name) != getattr(default, field.name)
    ]
    return "-".join(f"{name}={getattr(options, name)}" for name in names)


# Those that take least: all values of all options occur in them, and four fifths of the pairs.
QUICK = (
    *(0, 1, 7, 9, 11, 13, 17, 18, 19, 20, 21, 22, 24, 25, 26, 30, 34, 36, 37, 38, 39, 40, 42, 46),
    *(55, 56, 57, 59, 63, 64, 69, 76, 78, 81, 83, 86, 87, 89, 105, 111),
)
CHOSEN = COMBINATIONS if ALL else [COMBINATIONS[number] for number in QUICK]


def test_the_quick_ones_have_every_value() -> None:
    assert len(set(QUICK)) >= 40
    for name, values in VALUES.items():
        assert {getattr(COMBINATIONS[number], name) for number in QUICK} == set(values)


PAGED = [
    Options(pages=True, layout="bshd", kv_lengths=True, documents=True, heads="none"),
    Options(pages=True, layout="packed", kv_lengths=True, heads="none"),
]
LONG = [
    Options(pages=True, heads="grouped", causal=True, lse=True),
    Options(pages=True, weights="sigmoid", relative=True, bias="HMN"),
    Options(pages=True, weights="retention", causal=True),
    Options(pages=True, differential=True),
    Options(pages=True, dropout="philox", kv_lengths=True, q_lengths=True, mask="BMN"),
    Options(
        pages=True, layout="bshd", heads="shared", window_left=2, causal=True, kv_lengths=True,
        sinks=True, softcap=2.0,
    ),
    Options(
        pages=True, layout="packed", heads="grouped", causal=True, alignment="bottom_right",
        kv_lengths=True, documents=True, alibi="H", lse=True,
    ),
]  # fmt: skip


@pytest.mark.parametrize("options", [*CHOSEN, *PAGED, *LONG * ALL], ids=shown)
def test_both_passes_of_a_combination(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse(Source("composed.py", compose(options).text))
    made = emitted_with_backward(program)
    if not ALL:
        monkeypatch.setattr(verifying, "KINDS", ("normal",))
    sizes = {p.name: SIZES.get(p.name, 3) for p in program.parameters if p.is_integer}
    sets = [SizeSet("given", sizes)]
    report = verify_gradients(
        gradient_launcher(made), sets, ("float32",), prepare_device("cpu"), seed=0
    )
    gradients = {error.name for run in report.runs for error in run.outputs}
    floats = {a.name for a in program.arrays if a.role == "input" and a.element == "float"}
    assert {f"d{name}" for name in floats} <= gradients
    assert report.passed, report


@pytest.mark.parametrize(
    "score",
    [{"bias": "MN", "heads": "none"}, {"relative": True, "heads": "none"}, {"alibi": "H"}],
)
def test_sums_that_several_scores_share_do_not_keep_them_from_blocks(
    score: dict[str, Any],
) -> None:
    composed = compose(Options(batch=False, differential=True, **score))
    made = emitted(parse(Source("composed.py", composed.text)))
    (kernel,) = made.blocks.kernels
    assert has_products(kernel.body) and not made.blocks.notes, made.text


@pytest.mark.parametrize("left", [None, 1])
@pytest.mark.parametrize("right", [None, 2])
def test_a_prefix_is_seen_whatever_the_windows_hide(left: int | None, right: int | None) -> None:
    if left is None and right is None:
        with pytest.raises(Conflict):
            compose(Options(prefix=True))
        return
    options = Options(
        batch=False, heads="none", prefix=True, window_left=left, window_right=right, scale=1.0
    )
    listing = parse(Source("composed.py", compose(options).text))
    rng = np.random.default_rng(2)
    q, k, v = rng.normal(size=(9, 3)), rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    sizes = {"M": 9, "N": 7, "E": 3, "D": 2, "prefix": 3}
    found = execute(listing, sizes=sizes, inputs={"Q": q, "K": k, "V": v})["O"]
    distance = np.arange(9)[:, None] - np.arange(7)[None, :]
    seen = np.arange(7)[None, :] < 3
    near = np.ones((9, 7), dtype=bool)
    near &= distance <= left if left is not None else True
    near &= -distance <= right if right is not None else True
    weights = np.where(seen | near, np.exp(q @ k.T), 0.0)
    np.testing.assert_allclose(found, weights @ v / weights.sum(1, keepdims=True))


def test_the_verb_prints_the_listing(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["variant", "--causal", "--window-left", "given", "--softcap", "30", "--no-batch"]
    assert main([*asked, "--name", "mine"]) == 0
    options = Options(causal=True, window_left=GIVEN, softcap=30.0, batch=False)
    assert capsys.readouterr().out == compose(options, "mine").text
    assert main(["variant", "--causal", "--window-right", "3"]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert "causal is a window of 0 keys to the right" in told.err
    assert main(["variant", "--prefix"]) == 2
    assert "leave --prefix away, or choose another value, or give --causal" in (
        capsys.readouterr().err
    )


def test_help_has_a_line_for_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["variant", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split("options:")[1].split())
    assert all(about in shown for about in HELP.values())
    assert HELP.keys() == {field.name for field in fields(Options)}


@pytest.mark.parametrize("name", ["def", "two words", "", "1st"])
def test_what_no_function_is_called_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Conflict, match="a function's is made of letters"):
        compose(Options(), name)
    assert main(["variant", "--name", name]) == 2
    out, err = capsys.readouterr()
    assert not out and "help: give another --name" in err
