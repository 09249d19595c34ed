"""Terms that are no number at -inf, under a guard that passes by what comes first in a block."""

from __future__ import annotations

import pytest

from looptrans.reports.verify import verification_text
from looptrans.runtime.running.device import prepare_device
from tests.analysis import program

GUARDED = """
def mean(X: Float[Array, "M N"], c: Float[Array, "N"]):
    found = zeros(M)
    for i in range(0, M):
        m = -inf
        l = 0.0
        a = 0.0
        for j in range(0, N):
            s = X[i, j] if j > 3 else -inf
            t = max(m, {score})
            if t > -inf:
                a = a * exp(m - t) + exp({score} - t) * s
                l = l * exp(m - t) + exp({score} - t)
                m = t
        found[i] = a / l if l > 0.0 else 0.0
    return found
"""


@pytest.mark.parametrize("score", ["s", "s * 2.0", "s + c[j]"])
def test_blocks_leave_out_what_is_no_number(score: str) -> None:
    """The listing begins with s[4]; a block has a number for its maximum from s[0] on."""
    prepare_device()
    pytest.importorskip("triton")
    from looptrans.runtime.verifying.verify import verify

    report = verify(program(GUARDED.format(score=score)), [{"M": 2, "N": 9}], ["float32"])
    assert report.runs and report.passed, verification_text(report)
