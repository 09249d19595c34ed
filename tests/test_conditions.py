"""Conditions in negation normal form say what they said."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from looptrans.ir.condition import Condition, Every, Not, Relation, Some, negation_normal
from looptrans.ir.condition import walk_condition as parts
from looptrans.ir.index import Int, Var
from looptrans.ir.listing import condition_text

ENDS = st.sampled_from((Var("i"), Var("j"), Int(1)))
COMPARISONS = st.builds(Relation, st.sampled_from(("<", "<=", ">", ">=", "==", "!=")), ENDS, ENDS)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(Every, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Some, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_negation_normal_form(condition: Condition) -> None:
    normal = negation_normal(condition)
    assert not any(isinstance(part, Not) for part in parts(normal))
    assert negation_normal(normal) == normal
    texts = condition_text(condition), condition_text(normal)
    for i, j in product(range(3), repeat=2):
        before, after = (eval(text, {"i": i, "j": j}) for text in texts)
        assert bool(before) == bool(after)
