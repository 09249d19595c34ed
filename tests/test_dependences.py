"""Dependences of small nests, worked out by hand: pieces, distances, carriers, examples."""

from __future__ import annotations

import islpy as isl
import numpy as np
import pytest

from looptrans.analysis import api
from looptrans.analysis.dependence import directions
from looptrans.analysis.dependence.dependences import analyse
from looptrans.analysis.isl_model.formula import TRUE, conjunction, disjunction
from looptrans.analysis.isl_model.model import build_model
from looptrans.analysis.isl_model.polyhedra import dimensions, domain_formula
from looptrans.analysis.opaque_terms import opaque
from looptrans.analysis.ranges.coarse import coarsened
from looptrans.frontend.placement import annotated_placement
from looptrans.ir.condition import compared, opposite
from looptrans.ir.facts import Dependence, InstancePair
from looptrans.ir.index import Arith, walk
from looptrans.ir.program import If
from looptrans.ir.walk import nodes
from looptrans.transforms.steps.parallelize import parallelize
from tests.analysis import line, lines, program, report, spec
from tests.oracle.compare import compare


def test_as_printed_the_state_has_a_piece_carried_by_d_and_one_carried_by_j() -> None:
    printed = spec("flash_forward_as_printed")
    for ends, array in (("S12 -> S3", "m"), ("S13 -> S4", "l")):
        found = lines(printed, f"flow/value {ends} ", example=True)
        assert (
            f"flow/value {ends} {array} (=,=,<) (0,0,1) d | M=1 N=1 D=2: (0,0,0) -> (0,0,1)"
            in found
        )
        back = f"flow/value {ends} {array} (=,<,>) (0,1,1-D) j | M=1 N=2 D=2: (0,0,1) -> (0,1,0)"
        assert back in found
        # With D = 1 the distance 1-D is 0, which is a direction vector of its own.
        once = f"flow/value {ends} {array} (=,<,=) (0,1,0) j | M=1 N=2 D=1: (0,0,0) -> (0,1,0)"
        assert set(found) <= {*found[:1], once, back} or len(found) == 3


def test_in_the_right_placement_only_j_carries_flow() -> None:
    carriers = {
        d.carried_by for d in report(spec("flash_forward")).dependences if d.basis == "value"
    }
    assert carriers == {None, "j"}
    assert lines(spec("flash_forward"), "flow/value S12") == [
        "flow/value S12 -> S3 m (=,<) (0,1) j"
    ]


def test_statement_pairs_of_the_listing_as_printed() -> None:
    """Point 6 of the measured facts: 20, 20 and 13 pairs with scalar temporaries."""
    found = report(annotated_placement(spec("flash_forward_as_printed"))).dependences
    for kind, basis, count in (
        ("flow", "value", 20),
        ("flow", "memory", 20),
        ("anti", "memory", 20),
        ("output", "memory", 13),
    ):
        of_kind = [d for d in found if (d.kind, d.basis) == (kind, basis)]
        assert len({(d.source, d.sink) for d in of_kind}) == count, (kind, basis)


HAND = {
    # Iterations are counted in execution order.
    "for i in range(N - 1, 0, -1):\n    A[i - 1] = A[i]\n": [
        "flow/value S1 -> S1 A (<) (1) i | N=3: (2) -> (1)"
    ],
    "for i in range(0, N, 2):\n    A[i + 4] = A[i]\n": [
        "flow/value S1 -> S1 A (<) (2) i | N=5: (0) -> (4)"
    ],
    "for i in range(0, N, 2):\n    A[i + 3] = A[i]\n": [],
    "for i in range(N - 1, -1, -3):\n    A[i] = A[i + 6]\n": [
        "flow/value S1 -> S1 A (<) (2) i | N=7: (6) -> (0)"
    ],
    # A union is listed piece by piece.
    "for i in range(N):\n    A[i] = A[i - 1] + A[i - 3]\n": [
        "flow/value S1 -> S1 A (<) (1) i | N=2: (0) -> (1)",
        "flow/value S1 -> S1 A (<) (3) i | N=4: (0) -> (3)",
    ],
    "for i in range(N):\n"
    "    for j in range(i + 1):\n        A[i, j] = A[i - 1, j] + A[i, j - 1]\n": [
        "flow/value S1 -> S1 A (=,<) (0,1) j | N=2: (1,0) -> (1,1)",
        "flow/value S1 -> S1 A (<,=) (1,0) i | N=2: (0,0) -> (1,0)",
    ],
    # Only the loops that both share count.
    "for i in range(N):\n    s = A[i]\n    for j in range(M):\n        B[i, j] = s\n": [
        "flow/value S1 -> S2 s (=) (0) - | N=1 M=1: (0) -> (0,0)"
    ],
    "for i in range(N):\n    A[i] = x[i]\nfor i in range(N):\n    B[i] = A[i]\n": [
        "flow/value S1 -> S2 A () () - | N=1: (0) -> (0)"
    ],
    # Distances are expressions of the parameters.
    "for i in range(N):\n    A[i] = A[i + p]\n": [
        "flow/value S1 -> S1 A (<) (-p) i | N=2 p=-1: (0) -> (1)"
    ],
    "for t in range(2):\n    for i in range(N):\n        A[0] = A[0] + x[i]\n": [
        "flow/value S1 -> S1 A (=,<) (0,1) i | N=2: (0,0) -> (0,1)",
        "flow/value S1 -> S1 A (<,=) (1,0) t | N=1: (0,0) -> (1,0)",
        "flow/value S1 -> S1 A (<,>) (1,1-N) t | N=2: (0,1) -> (1,0)",
    ],
    # Pairs inside one instance are absent.
    "for i in range(N):\n    A[i] = A[i] + 1.0\n": [],
    # Only the branch of a ternary that is taken reads.
    "for i in range(N):\n    A[i] = x[i] if i == 0 else A[i - 1]\n": [
        "flow/value S1 -> S1 A (<) (1) i | N=2: (0) -> (1)"
    ],
    "for i in range(N):\n    A[i] = A[i - 1] if i == N else x[i]\n": [],
    # A size may divide an index.
    "for h in range(H):\n    for j in range(N):\n        K[h // R, j] = K[h // R, j] + x[h]\n": [
        "flow/value S1 -> S1 K (<,=) (1,0) h | H=2 N=1 R=2: (0,0) -> (1,0)"
    ],
    "def f(x, P: Const, T):\n    for t in range(T):\n        for r in range(P):\n"
    "            x[t * P + r] = x[t * P + r] + 1.0\n": [],
    # A loop of which only one iteration can meet another.
    "for i in range(N):\n    if i == 0:\n        A[0] = x[0]\n    else:\n        A[i] = A[0]\n": [
        "flow/value S1 -> S2 A (<) (*) i | N=2: (0) -> (1)"
    ],
}


@pytest.mark.parametrize("text", HAND, ids=range(len(HAND)))
def test_value_flow_by_hand(text: str) -> None:
    assert lines(text, "flow/value", example=True) == HAND[text]


def test_the_kinds_of_memory_dependences() -> None:
    text = "for i in range(N):\n    A[i] = A[i + p]\n"
    assert lines(text, "anti", example=True) == [
        "anti/memory S1 -> S1 A (<) (p) i | N=2 p=1: (0) -> (1)"
    ]
    scalar = "for i in range(N):\n    s = x[i]\n    y[i] = s\n"
    assert lines(scalar) == [
        "output/memory S1 -> S1 s (<) (*) i",
        "flow/value S1 -> S2 s (=) (0) -",
        "flow/memory S1 -> S2 s (=) (0) -",
        "flow/memory S1 -> S2 s (<) (*) i",
        "anti/memory S2 -> S1 s (<) (*) i",
    ]


def test_a_report_says_whether_all_was_asked_for() -> None:
    given = program("for i in range(N):\n    A[i] = A[i - 1]\n")
    assert not api.dependences(given).selected
    for found in (
        api.dependences(given, kinds=("anti", "output")),
        api.dependences(given, bases=("value",)),
        api.dependences(given, arrays=()),
    ):
        assert found.selected


def test_a_distance_that_is_no_function_of_the_parameters_has_its_set() -> None:
    (found,) = [
        d
        for d in report("for i in range(N):\n    A[2 * i] = A[i]\n").dependences
        if d.basis == "value"
    ]
    assert found.distance == ("*",) and found.direction == ("<",)
    assert found.distance_set is not None and "i > 0" in found.distance_set
    for d in report("for i in range(N):\n    A[i] = A[i - 1]\n").dependences:
        assert d.distance_set is None


def test_examples_are_smallest_by_parameters_then_absolute_value() -> None:
    text = "for i in range(N):\n    for j in range(M):\n        A[i, j] = A[i - 1, j + 1]\n"
    assert lines(text, "flow/value", example=True) == [
        "flow/value S1 -> S1 A (<,>) (1,-1) i | N=2 M=2: (0,1) -> (1,0)"
    ]
    # p = 1 before p = -1.
    both = "for i in range(N):\n    A[i + p * p * 0 + p] = x[i]\n    B[i] = A[i]\n"
    both = both.replace(" + p * p * 0", "")
    found = lines(both, "flow/value", example=True)
    assert all("p=0" in text or "p=1" in text or "(>)" in text for text in found), found


def test_only_data_dependent_conditions_make_a_dependence_uncertain() -> None:
    text = "for i in range(N):\n    if A[i] > 0.0:\n        s = A[i]\n    B[i] = s\n"
    assert all(line.startswith("may ") for line in lines("s = 0.0\n" + text, "flow/value S2"))
    select = "s = 0.0\nfor i in range(N):\n    if A[i] > s:\n        s = A[i]\n"
    assert lines(select, "flow/value S2") == ["flow/value S2 -> S2 s (<) (1) i"]
    affine = "for i in range(N):\n    if i % 2 == 0:\n        A[i + 2] = A[i]\n"
    assert lines(affine, "flow/value") == ["flow/value S1 -> S1 A (<) (2) i"]


@pytest.mark.parametrize("target", ["B[i]", "B[i, :]"])
def test_only_one_branch_of_a_guard_runs_in_an_iteration(target: str) -> None:
    text = (
        "for i in range(N):\n    for j in range(N):\n        if A[i, j] > 0.0:\n"
        f"            {target} = 1.0\n        elif A[i, j] < -1.0:\n            C[i, j] = B[i]\n"
        f"        else:\n            {target} = 2.0\n"
    )
    found = lines(text, "flow/value") + lines(text, "output/memory") + lines(text, "anti/memory")
    assert found and all(line.endswith("(=,<) (0,*) j") for line in found if " B " in line), found


def test_a_bound_from_an_array_gives_a_may_flow_between_iterations() -> None:
    text = (
        "for b in range(B):\n    for j in range(n[b]):\n        T[j] = X[b, j]\n"
        "    for j in range(N):\n        Y[b, j] = T[j]\n"
    )
    assert lines(text, "flow/value", example=True) == [
        "may flow/value S1 -> S2 T (=) (0) - | B=1 N=1: (0,0) -> (0,0)",
        "may flow/value S1 -> S2 T (<) (*) b | B=2 N=1: (0,0) -> (1,0)",
    ]
    carried = next(d for d in report(text).dependences if d.carried_by == "b" and d.kind == "flow")
    assert carried.witness is not None and ("n[0]", 1) in carried.witness.elements


PACKED = "for b in range(B):\n    for i in range(cu[b + 1] - cu[b]):\n        O[cu[b] + i] = 1.0\n"


def test_packed_rows_overlap_unless_the_contract_says_otherwise() -> None:
    free = report(PACKED).dependences
    assert free and all(d.may and d.carried_by == "b" and d.kind == "output" for d in free)
    contract = "assert all(cu[b] <= cu[b + 1] for b in range(B))\n"
    kept = report(contract + PACKED)
    assert kept.dependences == ()
    assert "cu[b] <= cu[b + 1]" in kept.assumptions[0]


def test_neighbouring_rows_never_overlap_so_the_example_needs_three() -> None:
    """cu[1] ends row 0 and begins row 1, so only rows 0 and 2 can meet."""
    for d in report(PACKED).dependences:
        assert d.witness is not None
        assert dict(d.witness.parameters) == {"B": 3}, d.witness
        cu = dict(d.witness.elements)
        (b, i), (c, k) = ([v for _, v in end] for end in (d.witness.source, d.witness.sink))
        assert cu[f"cu[{b}]"] + i == cu[f"cu[{c}]"] + k
        assert 0 <= i < cu[f"cu[{b + 1}]"] - cu[f"cu[{b}]"]
        assert 0 <= k < cu[f"cu[{c + 1}]"] - cu[f"cu[{c}]"]


def test_direction_is_that_of_the_carrier_and_sources_come_first() -> None:
    for name in ("flash_forward", "flash_forward_as_printed", "matmul", "softmax", "stencil"):
        for d in report(spec(name)).dependences:
            first = next((sign for sign in d.direction if sign != "="), "=")
            assert first in "<="
            assert (d.carried_by is None) == (first == "=")


def test_the_stencil() -> None:
    assert lines(spec("stencil"), "flow/value") == ["flow/value S1 -> S1 A (<,>) (1,-1) i"]


def test_strides_negative_steps_and_floors_take_no_minutes_and_fall_into_few_pieces() -> None:
    """isl alone looks minutes for the examples, and cuts many corners off these distances."""
    found = report(
        "for i in range(-1, N):\n"
        "    for k in range(N - 1, -1, -1):\n"
        "        for j in range(M - k):\n"
        "            s = i + C[2 * j - i, (2 * i - 1) // 3, i - 1]\n"
        "            if k < i:\n"
        "                B[i] += D[(-k) // 2, i + j] - s\n"
        "            elif i == j:\n"
        "                x = A[(i - k) % 3] if -1 <= j - i <= 1 or j % 3 == 1 else B[k % 3 + i]\n"
        "                B[k - 1] = x - B[i + 1]\n"
        "            elif j % 3 == 1:\n"
        "                B[k % 3 + k] = D[k, k] - B[k % 3 + k] - D[N - 1 - i, j % 3 + j]\n"
    )
    flow = [d for d in found.dependences if (d.source, d.sink, d.basis) == ("S5", "S2", "value")]
    assert flow and all(d.witness is not None for d in flow)
    assert len(flow) <= 2 * len({d.direction for d in flow})


STRIDES = """
def f(A: Float[Array, "{0}"], B: Float[Array, "{0}"], N):
    for x in range(N, -1, -3):
        for z in range(x % 2, N, 2):
            B[1] = B[2]
        B[(x + 1) % 3] = A[x]
    for y in range(4):
        A[y] = B[y]
"""
PARITY = """
def f(B: Float[Array, "P"], N):
    for i in range(0, N, 2):
        for j in range(i + 1):
            if j % 2 == 0:
                B[i % 2] += 1.0
            B[i % 2] = 1.0
"""


@pytest.mark.parametrize("text", [STRIDES.format("P"), STRIDES.format("P D"), PARITY])
def test_flow_by_value_is_the_same_whether_memory_is_asked_for_or_not(text: str) -> None:
    """Among strides isl's dataflow analysis loses last writers, or fails."""
    alone = api.dependences(program(text), bases=("value",))
    assert alone.unknown is None
    assert list(map(line, alone.dependences)) == lines(text, "flow/value")


def test_the_last_writer_of_a_row_among_strides() -> None:
    assert lines(STRIDES.format("P D"), "flow/value") == [
        "flow/value S1 -> S3 B () () -",
        "flow/value S2 -> S1 B (<) (1) x",
        "flow/value S2 -> S3 B () () -",
    ]


def test_twice_a_size_is_no_parameter_of_its_own() -> None:
    text = """
def f(A: Float[Array, "2*H*G"], H: Const):
    for g in range(G):
        for h in range(H):
            A[2 * H * g + h + H] = A[2 * H * g + h] + A[2 * H * g]
"""
    found = api.dependences(program(text))
    assert found.unknown is None
    assert lines(text, "flow/value") == []


def test_a_product_of_sizes_is_one_parameter_whatever_its_factors_are_written_like() -> None:
    """Multiples, other orders of factors, and sums that are multiplied out."""
    for count, shift in (
        ("H*W", "2*H*W"),
        ("H*W", "W*2*H"),
        ("H*W", "H*W + 3*(W*H)"),
        ("W*(H + 1)", "H*W + W"),
        ("E*H*W", "W*(H*E)"),
        ("max(H, 2)*W", "3*W*max(H, 2)"),
    ):
        text = f"""
def f(A: Float[Array, "N"]):
    for i in range({count}):
        A[i] = A[i + {shift}] + 1
"""
        assert api.dependences(program(text)).dependences == ()


def test_a_product_of_sizes_is_not_negative_and_another_one_than_a_quotient() -> None:
    text = """
def f(A: Float[Array, "H W"], B: Float[Array, "N"]):
    for i in range(5):
        B[i + H*W] = B[i - 1] + 1.0
"""
    assert lines(text, "anti") == []
    text = """
def f(A: Float[Array, "N"]):
    for i in range(E // H * W):
        A[i] = A[i + E // (H * W)] + 1
"""
    (found,) = (d for d in api.dependences(program(text)).dependences if d.kind == "anti")
    assert found.distance == ("(E // (H * W))",)


def test_a_multiple_of_a_quotient_is_not_the_quotient_of_a_multiple() -> None:
    text = """
def f(A: Float[Array, "N"]):
    for i in range((2 * (H // W)) // E):
        A[i] = A[i + 2 * H // W // E] + 1
"""
    assert lines(text, "anti/memory") == ["anti/memory S1 -> S1 A (<) (((2 * H // W) // E)) i"]


def test_products_of_sizes_in_sets_of_distances() -> None:
    """A coefficient stands before the name of a product without a space."""
    text = """
def f(A: Float[Array, "N"]):
    for g in range(G):
        for h in range(2*H*W):
            A[6*H*W - 3*g + 5*h] = A[4*H*W + h + 3*H*W] + A[g*2]
"""
    sets = [d.distance_set or "" for d in api.dependences(program(text)).dependences]
    assert any("2(H * W)" in each for each in sets)
    assert all(each.startswith(("[G, (H * W)]", "[N, G, (H * W)]")) for each in sets if each)


def test_a_loop_variable_times_minus_a_size() -> None:
    """A row of cells overlaps the next but one: 2*j = H*di."""
    text = """
def f(A: Float[Array, "M"], H: Const):
    for i in range(N):
        for j in range(3):
            A[H*N - H - H*i + j*2] = 1.0
"""
    found = api.dependences(program(text)).dependences
    assert {d.distance: dict(d.witness.parameters) for d in found if d.witness} == {
        ("*", "0"): {"H": 0, "N": 2},  # where H is 0, all rows are one
        ("1", "1"): {"H": 2, "N": 2},
        ("1", "2"): {"H": 4, "N": 2},
        ("2", "1"): {"H": 1, "N": 3},
        ("2", "2"): {"H": 2, "N": 3},
        ("4", "2"): {"H": 1, "N": 5},
    }
    assert [d.distance for d in found if d.may] == [("3", "2")]  # 3*H = 4 is at no size


def test_neighbours_in_rows_of_a_size_that_is_no_number() -> None:
    """Multiples of a size are gathered: `2*W*i - 2*W + j` lies one row before `2*W*i + j`."""
    text = """
def f(A: Float[Array, "n"], B: Float[Array, "n"], W: Const):
    for i in range(1, M):
        for j in range(2*W):
            A[2*W*i + j] = A[2*W*i - 2*W + j]
            B[2*W*i + j] = B[2*W*i + j - 1]
"""
    assert lines(text, "flow/memory") == [
        "flow/memory S1 -> S1 A (<,=) (1,0) i",
        "flow/memory S2 -> S2 B (=,<) (0,1) j",
        "flow/memory S2 -> S2 B (<,>) (1,1-2*W) i",
    ]


def test_a_stride_may_be_zero_and_distances_that_are_not_known_are_not_said_to_be() -> None:
    text = """
def f(A: Float[Array, "n"], X: Float[Array, "G"], S: Const):
    for g in range(G):
        A[{stride}*g] = X[g]
"""
    for stride, zero in (("S", 0), ("(S - 2)", 2)):
        verdict = parallelize(program(text.format(stride=stride)), "g").verdict
        assert verdict.decision == "illegal" and verdict.witness is not None
        assert dict(verdict.witness.parameters)["S"] == zero
    stated = text.format(stride="S").replace("    for", "    assert S >= 1\n    for")
    assert parallelize(program(stated), "g").verdict.decision == "legal"
    text = """
def f(A: Float[Array, "n"], H: Const):
    for g in range(G):
        for h in range(H):
            A[H*g + h] = A[H*h + g]
"""
    found = api.dependences(program(text)).dependences
    # (g, h) reads what (h, g) writes: distances (d, -d); and beyond, multiples of H - 1 only.
    assert all(d.within for d in found if "*" in d.distance and d.kind == "flow")
    assert {d.distance for d in found if d.direction == ("=", "<")} == {("0", "H-1")}


def test_an_example_has_products_that_are_what_they_say() -> None:
    text = """
def f(A: Float[Array, "N"]):
    for i in range(2*H*W):
        A[i] = A[i + W*H - 5] + 1
"""
    verdict = parallelize(program(text), "i").verdict
    assert verdict.decision == "illegal" and verdict.witness is not None
    assert dict(verdict.witness.parameters) == {"H": 2, "W": 3, "H * W": 6}


def test_two_iterations_apart_by_twice_a_product_run_in_parallel() -> None:
    text = """
def f(A: Float[Array, "N"]):
    for i in range(H*W):
        A[i] = A[i + 2*H*W] + 1
"""
    assert parallelize(program(text), "i").verdict.decision == "legal"


def test_what_is_read_in_any_case_is_certain_beside_what_may_be() -> None:
    """A condition reads what its branches read again, and one branch alone only may."""
    text = """\
for i in range(2, N):
    A[i] = A[i - 1] + (A[i - 2] if x[i] > 0.0 else 0.0)
for i in range(N):
    B[i] = x[i]
    if i == 3 and x[i] > 0.0:
        B[0] = 1.0
    C[i] = B[0]
"""
    assert lines(text, "flow/value") == [
        "flow/value S1 -> S1 A (<) (1) i",
        "may flow/value S1 -> S1 A (<) (2) i",
        "flow/value S2 -> S4 B (=) (0) -",
        "flow/value S2 -> S4 B (<) (1) i",
        "flow/value S2 -> S4 B (<) (2) i",
        "may flow/value S2 -> S4 B (<) (*) i",
        "may flow/value S3 -> S4 B (=) (0) -",
        "may flow/value S3 -> S4 B (<) (*) i",
    ]
    text = """
def shortest(N, P):
    for k in range(N):
        for i in range(N):
            for j in range(N):
                P[i, j] = P[i, j] if P[i, j] < P[i, k] + P[k, j] else P[i, k] + P[k, j]
"""
    assert not any(d.may for d in api.dependences(program(text), witnesses=False).dependences)
    assert parallelize(program(text), "j").verdict.decision == "illegal"


def test_bounds_by_minima_and_maxima_are_one_case() -> None:
    """A product of cases for each pair of them would be told apart, and joined again."""
    text = "for i in range(N):\n    for j in range(max(0, i - 3), min(N, i + 1)):\n"
    text += "        if j >= max(i - 2, 1) and not j > min(i, 9):\n            A[i, j] = 1.0\n"
    model = build_model(program(text))
    (statement,) = model.statements
    names = list(dimensions(statement).values())
    space = f"{model.prefix}{{ [{', '.join(names)}] : "
    domain = isl.Set(f"{space}{domain_formula(model, statement)} }}")
    assert domain.n_basic_set() == 1
    (i, j), (n,) = names, model.parameters.values()
    same = f"0 <= {i} < {n} and 1 <= {j} < {n} and {i} - 2 <= {j} <= {i} and {j} <= 9"
    assert domain.is_equal(isl.Set(f"{space}{same} }}"))


def test_scalars_of_one_loop_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    found = opaque._Finder._points
    asked: list[object] = []

    def counted(self: opaque._Finder, *question: object) -> object:
        asked.append(question)
        return found(self, *question)  # type: ignore[arg-type]

    monkeypatch.setattr(opaque._Finder, "_points", counted)
    counts = []
    for names in ("s", "stuv"):
        asked.clear()
        text = "def f(n: Int[Array, 'M'], A):\n"
        text += "".join(f"    {name} = 0.0\n" for name in names)
        text += "    for i in range(M):\n        for j in range(n[i]):\n"
        body = "".join(f"            {name} = {name} + A[j]\n" for name in names)
        report(text + body)
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_a_conjunction_in_another_has_no_parentheses_but_a_choice_has() -> None:
    inner = conjunction(["a", disjunction(["b", "c"])])
    assert conjunction(["d", inner, "e or f"]) == "(d) and (a) and ((b) or (c)) and (e or f)"
    assert conjunction([disjunction([inner]), TRUE]) == f"(({inner}))"


def test_what_is_asked_about_one_cell_is_what_is_looked_for() -> None:
    text = "def f(A, n):\n    s = 0.0\n    for i in range(N):\n        A[n[i]] = A[i] + 1\n"
    nest = program(f"{text}        s = s + A[i]\n")
    found = analyse(nest, kinds=("output",))
    everything = [r for r in analyse(nest).relations if r.basis == "value" or r.kind == "output"]
    assert [(r.kind, r.basis, r.source, r.sink, r.array) for r in found.relations] == [
        (r.kind, r.basis, r.source, r.sink, r.array) for r in everything
    ]
    assert all(a.pairs.is_equal(b.pairs) for a, b in zip(found.relations, everything, strict=True))


def test_a_write_that_contents_decide_in_part_overwrites_where_they_do_not() -> None:
    text = """
def f(A, B, n: Int[Array, "N"], N, M):
    for r in range(N):
        for c in range(M):
            if c > 1 or n[r] == c:
                B[c] = A[r, c]
            if c > 2:
                A[r, c] = B[c]
"""
    assert lines(text, "flow/value") == ["may flow/value S1 -> S2 B (=,=) (0,0) -"]
    contents = {"n": np.array([1, 0, 4])}
    compare(text, {"N": 3, "M": 5}, contents, frozenset({"opaque"}))


def test_a_write_that_data_decide_in_part_overwrites_where_they_do_not() -> None:
    """The running maximum is begun anew in each row, by the first iteration in any case."""
    text = """
def f(X: Float[Array, "N M"], N, M):
    out = zeros(N)
    m = 0.0
    for i in range(N):
        for j in range(M):
            if j == 0 or X[i, j] > m:
                m = X[i, j]
            if j == M - 1:
                out[i] = m
    return out
"""
    assert not any(d.carried_by == "i" for d in report(text).dependences if d.basis == "value")
    memory = api.loop_facts(program(text))[0].memory
    assert (memory.decision, memory.names) == ("privatize", ("m",))
    compare(text, {"N": 3, "M": 3}, {}, frozenset({"data_guard"}), witnesses=True)
    rows = text.replace("m = 0.0", "m = zeros(M)").replace("m = X[i, j]", "m[:] = X[i, j]")
    rows = rows.replace("> m:", "> m[j]:").replace("= m\n", "= m[0]\n")
    assert not any(d.carried_by == "i" for d in report(rows).dependences if d.basis == "value")
    compare(rows, {"N": 3, "M": 3}, {}, frozenset({"data_guard"}))


def test_an_example_of_what_contents_decide_is_not_overwritten_in_between() -> None:
    """S3 of the same iteration writes A[1] after S2 where r + c = 1."""
    text = """
def f(A, C, n: Int[Array, "N+1"], N):
    for r in range(0, N + 1):
        for c in range(n[r]):
            t = A[(c + r) // 2]
            if c != 2 or c != r:
                if r + r < N:
                    A[1] -= 1.0
            A[r + c] = max(t, C[r % 3])
"""
    found = lines(text, "flow/value S2 -> S1 ", example=True)
    assert "may flow/value S2 -> S1 A (<,=) (1,0) r | N=3: (1,1) -> (2,1)" in found


def test_distances_that_a_remainder_leaves_are_all_listed_at_given_contents() -> None:
    """S2 writes B[0] in (1,2) and in (3,0); isl found no distance between them that is least."""
    text = """
def f(B: Float[Array, "N"], t: Int[Array, "N", "0:N"], N):
    for i in range(1, N, 2):
        for j in range(0, N):
            B[t[i]] = 1.0
            B[j % 2] = 2.0
"""
    compare(text, {"N": 4}, {"t": np.array([1, 1, 3, 3])}, frozenset({"opaque"}))


def test_guards_by_several_quotients_are_truths_of_iterations() -> None:
    """A guard and its opposite are one truth; two quotients are looked into."""
    text = """
def f(x: Float[Array, "N N"], P: Const, Q: Const):
    y = zeros(N)
    for i in range(N):
        for j in range(N):
            if i // P == j // P:
                if {inner}:
                    y[i] += x[i, j]
                else:
                    y[j] += x[i, j]
    return y
"""
    few, many = (program(text.format(inner=t)) for t in ("i // P >= 2", "i % Q < j // Q"))
    assert coarsened(few) == few
    asked = [node.condition for node in nodes(coarsened(many).body) if isinstance(node, If)]
    parts = [part for c in asked for side in compared(c) for part in walk(side)]
    assert len(asked) == 2 and not any(isinstance(part, Arith) for part in parts)
    turned = program(text.format(inner="i % Q >= j // Q"))
    mine, its = (
        next(n.condition for n in nodes(coarsened(p).body) if isinstance(n, If) and n.orelse)
        for p in (many, turned)
    )
    assert opposite(mine) == its


@pytest.mark.parametrize("stop", ["L", "i + 1"])
def test_too_many_direction_vectors_are_one_for_each_carrier(
    stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pairs of instances, in pieces that are carried by the same loops."""
    text = program(f"""
def f(A: Float[Array, "M N L"]):
    s = 0.0
    for i in range(M):
        for j in range(N):
            for k in range({stop}):
                t = A[i, j, k]
                s = s + t
    return s
""")
    sizes = {"M": 3, "N": 2, "L": 3}
    every = api.dependences(text, at=sizes).dependences
    monkeypatch.setattr(directions, "MOST_DIRECTIONS", 12)
    joined = api.dependences(text, at=sizes).dependences
    output = [d for d in joined if (d.kind, d.source, d.sink) == ("output", "S2", "S2")]
    assert {d.direction: d.carried_by for d in output} == {
        ("=", "=", "<"): "k",
        ("=", "<", "*"): "j",
        ("<", "*", "*"): "i",
    }
    assert all(d.witness is not None for d in joined)

    def pairs(found: tuple[Dependence, ...]) -> dict[tuple[str | None, ...], list[InstancePair]]:
        instances: dict[tuple[str | None, ...], list[InstancePair]] = {}
        for d in found:
            key = (d.kind, d.basis, d.source, d.sink, d.array, d.carried_by)
            assert d.instances is not None
            instances[key] = sorted([*instances.get(key, []), *d.instances])
        return instances

    assert pairs(joined) == pairs(every)
