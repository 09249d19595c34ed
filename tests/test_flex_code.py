"""`benchmarks.flex_code`: FlexAttention's templates filled in, and the table of counts."""

from __future__ import annotations

import ast

import pytest

from looptrans.runtime.running.device import prepare_device

pytest.importorskip("torch")
prepare_device("cpu")

from benchmarks.flex_code import Counted, table  # noqa: E402  # it needs triton
from benchmarks.flex_templates import Pass, rendered  # noqa: E402


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_templates_of_the_torch_that_is_installed_are_filled_in(which: Pass) -> None:
    made = rendered(which, "bias", 128)
    functions = [each for each in ast.parse(made.text).body if isinstance(each, ast.FunctionDef)]
    kernel = next(each for each in functions if each.name == "flex_kernel")
    assert [each.arg for each in kernel.args.args] == list(made.signature)
    assert made.signature["arg_BIAS"] == "*bf16"
    assert made.signature["arg_LSE"] == "*fp32"
    assert made.signature["arg_KV_IDX"] == "*i32"
    assert "tl.load(arg_BIAS + " in made.text
    assert "arg_BIAS" not in rendered(which, "causal", 64).signature


def test_the_table_has_a_row_for_each_kind_of_block() -> None:
    found = [
        Counted("causal", which, emitted, 100 + emitted, (200, 202), 128, 0)
        for which in ("forward", "dQ", "dK and dV")
        for emitted in (False, True)
    ]
    found += [Counted("bias", each.which, each.emitted, 7, (), 128, 0) for each in found]
    assert table(found).splitlines()[2:] == [
        "| causal, full | 100 / 100 / 100 | 101 / 101 / 101 |",
        "| causal, masked | 200 to 202 / 200 to 202 / 200 to 202 "
        "| 200 to 202 / 200 to 202 / 200 to 202 |",
        "| bias | 7 / 7 / 7 | 7 / 7 / 7 |",
    ]
