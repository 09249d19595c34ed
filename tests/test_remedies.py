"""What a message tells the person who made the mistake to do about it."""

from __future__ import annotations

import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.frontend import parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.source import Source
from looptrans.transforms.script import apply_all
from tests.analysis import program
from tests.test_bad_input import mistakes_of

REMEDIES = {
    "for i in tqdm(range(1, N)): x[i] = 0.0": "write for i in range(1, N)",
    "for i in trange(N): x[i] = 0.0": "write for i in range(N)",
    "for i in range(N): x[i] = sum(x[k] for k in prange(N))": "write for k in range(N)",
    "for i in range(N): barrier(x[i])": "write barrier()",
    "for i in range(N): x[i] = barrier()": "write barrier() on a line of its own",
    "for i in range(N): atomic()": "write with atomic():",
    "with open(x): x[0] = 0.0": "take the statements out of the with",
    "for i in range(0, N, 0): x[i] = 0.0": "use 1 to count up",
    "for i in range(N): x[i] = x[i].sum()": "write it as a function, sum(x[i])",
    "for i in range(N): x[i] = (x[i] * y[i]).sum()": "write it as a function, sum(x[i] * y[i])",
    "for i in range(N): x[i] = x.flatten()[i]": "give the array a name",
    "for i in range(N): x[i] = x[i].clamp(0)": "an array has no methods here",
    "for i in range(N): x[i] = self.act(x[i])": "define it as a pure helper",
    "for i in range(N): x[i] = 1.0 if x is not None else 0.0": "leave the case out",
    "for i in range(N): x[i] = 1.0 if i in (1, 2) else 0.0": "compare with ==, joined by or",
    "for i in range(N): x[i] = 1.0 if i in range(2, 5) else 0.0": "compare with its ends",
    "for i in range(N): x[i] = floor(x[i])": "write x // 1.0",
    "for i in range(N): x[i] = math.ceil(x[i])": "write -(-x // 1.0)",
    "for i in range(N): x[i] = round(x[i])": "write (x + 0.5) // 1.0",
    "for i in range(N): x[i] = x[i].item()": "leave it out",
    "for i in range(N): x[i] = x[i].astype(float16)": "a function, float32(x[i])",
    "for i in range(N): x[i] = x[i] ^ 2": "a power is x ** 2",
    "out = []": "create an array, a = zeros(N)",
}


@pytest.mark.parametrize("statement", REMEDIES)
def test_the_remedy_fits_the_mistake(statement: str) -> None:
    text = f"def f(self, x, N):\n    {statement}\n    for k in range(N): x[k] = 1.0\n"
    (mistake,) = mistakes_of(text)
    assert REMEDIES[statement] in mistake.remedy


def test_a_shape_is_taken_apart_by_its_extents() -> None:
    text = (
        'def f(x: Float[Array, "N M"]):\n    a, b = x.shape\n'
        "    for i in range(a): x[i, 0] = 1.0 * b\n"
    )
    assert "for i in range(0, a):" in listing(parse(Source("t.py", text)))
    more = text.replace("N M", "N M K").replace("[i, 0]", "[i, 0, 0]")
    assert mistakes_of(more)[0].remedy == "write a, b = x.shape[0], x.shape[1]"
    same = more.replace("N M", "a b")  # Of which Python says that there are too many values.
    assert mistakes_of(same)


def test_an_argument_of_bounds_that_is_assigned() -> None:
    text = "def f(x, N):\n    N = N - 1\n    for i in range(N): x[i] = 1.0\n"
    (mistake,) = mistakes_of(text)
    assert mistake.message == "'N' stands in an index expression, and the listing assigns it"
    assert "another name" in mistake.remedy


def test_a_function_without_loops_is_no_listing() -> None:
    (mistake,) = mistakes_of("def f(x):\n    return x + 1\n")
    assert mistake.code == "E004"


@pytest.mark.parametrize(
    ("argument", "what"), [("n: float", "a real number"), ('n: Int[Array, "B"]', "an array")]
)
def test_a_size_of_a_shape_is_nothing_else(argument: str, what: str) -> None:
    text = f'def f(x: Float[Array, "n"], {argument}):\n    for i in range(3): x[i] = 1.0\n'
    (mistake,) = mistakes_of(text)
    assert mistake.message == f"the size 'n' of the annotation is also {what}"


def test_what_stands_between_two_loops_is_got_out_of_the_way() -> None:
    program = parse(
        Source(
            "t.py",
            """\
def f(A, B, N):
    for i in range(0, N):
        t = A[i]
        u = t * 2.0
        for j in range(0, N):
            B[i, j] = B[i, j] + t * u
        A[i] = u
    return A, B
""",
        )
    )
    with pytest.raises(ListingError) as mistake:
        apply_all(program, ["interchange(i, j)"])
    remedy, _, _ = mistake.value.render().rpartition("help: ")[2].partition(" first")
    assert remedy == "expand(t, i); expand(u, i); distribute(i, S3, S4)"
    steps = apply_all(program, [remedy, "interchange(i@S3, j)"])
    assert [step.verdict.decision for step in steps] == ["legal"] * 4


def test_a_local_that_stands_in_a_subscript_is_to_be_written_out() -> None:
    text = """
def f(A, B, N):
    for i in range(0, N):
        q = N - 1 - i
        for j in range(0, N):
            A[i, j] = B[q, j]
"""
    program = parse(Source("t.py", text))
    with pytest.raises(ListingError, match="stands between") as mistake:
        apply_all(program, ["interchange(i, j)"])
    assert "help: write out what q stands for where it is used" in mistake.value.render()
    with pytest.raises(ListingError, match="q stands in a bound, guard or subscript"):
        apply_all(program, ["expand(q, i)"])
    lines = [line.replace("[q", "[N - 1 - i") for line in text.split("\n") if "q =" not in line]
    (step,) = apply_all(parse(Source("t.py", "\n".join(lines))), ["interchange(i, j)"])
    assert step.verdict.decision == "legal"


@pytest.mark.parametrize("name", ["phased_atomics", "block_reduce", "ordered_atomics"])
def test_what_cannot_be_told_in_one_step_can_in_two(name: str) -> None:
    program = parse(
        Source(
            "t.py",
            """\
def f(c: Float[Array, "N N"], n: Int[Array, "N", "0:N"], y: Float[Array, "N"], N):
    best = -inf
    for i in range(N):
        tot = 0.0
        for j in range(n[i]):
            tot = tot + c[i, j]
            best = max(best, tot)
        y[i] = tot
    return y, best
""",
        )
    )
    (step,) = apply_all(program, [f"{name}(i)"])
    assert (step.verdict.decision, step.verdict.help) == ("unknown", "privatize(i) first")
    steps = apply_all(program, ["privatize(i)", f"{name}(i)"])
    assert [step.verdict.decision for step in steps] == ["legal"] * 2


def test_a_statement_that_mentions_an_inner_loop_is_not_to_be_hoisted_from_it_first() -> None:
    text = "def f(A, B, N):\n    for i in range(N):\n        for j in range(N):\n            "
    remedies = []
    for statement in ("A[0] = B[1]", "A[j] = B[i]"):
        with pytest.raises(ListingError) as mistake:
            apply_all(parse(Source("t.py", f"{text}{statement}\n")), ["hoist(S1, i)"])
        remedies.append(mistake.value.render().rpartition("help: ")[2].strip())
    assert remedies == ["hoist(S1, j) first", "hoist what does not mention i and j"]


def test_a_remedy_is_offered_where_there_is_one() -> None:
    def help_of(body: str, call: str) -> str:
        text = f"def f(A, B, N):\n    s = 0.0\n    for i in range(N):\n        {body}\n"
        program = parse(Source("t.py", f"{text}    return A, B, s\n"))
        try:
            (step,) = apply_all(program, [call])
        except ListingError as mistake:
            return mistake.render().rpartition("help: ")[2].strip()
        return step.verdict.help

    tied = "A[i] = A[i] * B[i]; B[i + 1] = A[i]"
    assert help_of(tied, "distribute(i, S3)") == "the dependences let i be split nowhere"
    tied = "B[i] = A[i + 1]; A[i] = s; A[i + 1] = 2.0"
    assert help_of(tied, "distribute(i, S4)").startswith("distribute(i) splits it as far")
    turns = "ordered_atomics(i) lets the iterations take turns at s"
    assert help_of("s = s * A[i] + B[i]", "privatize(i)") == turns
    kept = "promote(A, i) keeps the element in a local instead"
    assert help_of("B[i] = s; A[0] = A[0] * 2.0", "hoist(S3, i)") == kept
    assert help_of("A[i] = B[i]; A[0] = A[0] * 2.0", "hoist(S3, i)") == ""


def test_a_reduction_is_offered_only_what_its_updates_are_written_for() -> None:
    program = parse(
        Source(
            "t.py",
            "def f(A, B, Z, N):\n"
            "    for i in range(N):\n        B[0] = B[0] + 2.0 * Z[i] + Z[i + 1]\n"
            "    for j in range(N):\n        B[1] -= Z[j]\n"
            "    for k in range(N):\n        B[2] += Z[k]\n"
            "    for r in range(N):\n        for q in range(N): A[2 * q, q] += Z[r]\n"
            "    for e in range(N):\n        for q in range(N): B[3] += A[q, e]\n"
            "        B[3] += Z[e]\n",
        )
    )
    offered = {
        "i": ["phased_atomics"],
        "j": ["phased_atomics", "split"],
        "k": ["phased_atomics", "block_reduce", "split"],
        "r": ["phased_atomics", "block_reduce"],
        "e": ["phased_atomics", "split"],
    }
    for loop, names in offered.items():
        (step,) = apply_all(program, f"parallelize({loop})")
        found = [n for n in ("phased_atomics", "block_reduce", "split") if n in step.verdict.help]
        assert found == names
        for name in names:
            script = f"{name}({loop}{', 2' if name == 'split' else ''})"
            assert apply_all(program, script)[-1].verdict.decision == "legal"


def test_loops_to_skew_are_named_so_that_they_are_found() -> None:
    program = parse(
        Source(
            "t.py",
            "def f(A, N):\n    for j in range(N):\n        for k in range(N): A[j, k] = 1.0\n"
            "    for j in range(1, N):\n        for k in range(N - 2): A[j, k] = A[j - 1, k + 2]\n",
        )
    )
    (step,) = apply_all(program, "interchange(j@4, k@5)")
    assert step.verdict.help.endswith("with skew(k@5, j@4, 2)")
    assert apply_all(program, "skew(k@5, j@4, 2); interchange(j@4, k@5)")[-1].verdict.decision == (
        "legal"
    )


def test_a_sum_over_rows_that_a_table_bounds_is_offered_what_it_can_do() -> None:
    program = parse(
        Source(
            "t.py",
            'def f(x: Float[Array, "N"], y: Float[Array, "M"], n: Int[Array, "M", "0:N+1"]):\n'
            "    for i in range(M):\n        for j in range(n[i]): y[i] += x[j]\n",
        )
    )
    with pytest.raises(ListingError) as found:
        apply_all(program, "split(j, 2)")
    assert found.value.mistakes[0].remedy.startswith("phased_atomics(j) joins")
    assert apply_all(program, "phased_atomics(j)")[-1].verdict.decision == "legal"


SEQUENCES = """
def f(x: Float[Array, "T"], w: Float[Array, "T"], cu: Int[Array, "B+1", "0:T+1"]):
    assert all(cu[b] <= cu[b + 1] for b in range(B))
    c = zeros(T); y = zeros(T)
    for b in range(B):
        for t in range(cu[b], cu[b + 1]):
            c[t] = sum(x[s] for s in range(cu[b], t + 1))
"""
READ = """    for b in range(B):
        for i in range(cu[b], cu[b + 1]):
            y[i] = sum(c[j] * w[j] for j in range(cu[b], i + 1))
"""


def test_what_adds_up_along_a_packed_sequence_has_gradients_in_a_listing_of_its_own() -> None:
    with pytest.raises(NotDifferentiated) as refused:
        backward(program(SEQUENCES + READ + "    return y\n"))
    assert "in a listing of its own, and hand it on as an argument" in refused.value.remedy
    given = SEQUENCES[: SEQUENCES.index("    for b")].replace("cu:", 'c: Float[Array, "T"], cu:')
    given = given.replace("c = zeros(T); ", "") + READ + "    return y\n"
    for text in (SEQUENCES + "    return c\n", given):
        backward(program(text))


@pytest.mark.parametrize("line", ["y[i] = max({})", "y[i] = {} @ x[0, :]", "y[i] = sum({})"])
@pytest.mark.parametrize("row", ["x[i]", "x[i, :]"])
def test_a_row_of_unknown_length_is_named_with_what_to_declare(line: str, row: str) -> None:
    loop = f"    for i in range(N):\n        {line.format(row)}\n"
    text = f"def f({{x}}, y: Float[Array, 'N'], N):\n{loop}    return y\n"
    with pytest.raises(Refused) as caught:
        emitted(program(text.format(x="x")))
    said = f"how long the row {row} is; declare its shape, x: Float[Array,"
    assert said in caught.value.reason
    emitted(program(text.format(x="x: Float[Array, 'N D']")))


def test_refusals_call_rows_of_several_loops_as_the_listing_does() -> None:
    """Each loop is given a row of its own name before it is differentiated."""
    text = """
def f(X: Float[Array, "N E"], K: Float[Array, "C E"]):
    H = zeros((N, E))
    for i in range(N):
        for e in range(E): H[i, e] = X[i, e]
    for i in range(N):
        r = zeros(E)
        for c in range(C): r[0] = max(r[0], sum(H[i, e] * K[c, e] for e in range(E)))
        for e in range(E): H[i, e] = H[i, e] * r[0]
    for i in range(N):
        r = full(E, -inf)
        for c in range(C):
            for e in range(E): r[e] = {}
        for e in range(E): H[i, e] = H[i, e] + r[e]
    return H
"""
    for step in ("max(r[e], H[i, e] * K[c, e])", "r[e] * r[e] + H[i, e] * K[c, e]"):
        with pytest.raises(NotDifferentiated) as refused:
            backward(program(text.format(step)))
        assert refused.value.label == "S6"
        assert refused.value.reason.startswith("r is ")
        assert refused.value.reason.count("not handed over") <= 1


def test_a_dimension_that_is_none_is_named_as_it_is_written() -> None:
    text = 'def f(A: Float[Array, "M N"]):\n    n = A.shape[-3]\n    return A\n'
    (mistake,) = mistakes_of(text)
    assert "'A' has no dimension -3" in mistake.message


@pytest.mark.parametrize("step", ["10 ** 30", "9223372036854775808", "1.5", "2 ** 3"])
def test_a_step_of_numbers_is_written_out(step: str) -> None:
    (mistake,) = mistakes_of(f"for i in range(0, N, {step}):\n    A[i] = 0.0\n")
    assert "is no integer that is written out" in mistake.message
    assert "64" not in mistake.message and "63 bits" in (mistake.why or "")


def test_an_array_that_is_its_own_element_is_one_mistake() -> None:
    (mistake,) = mistakes_of("for i in range(N):\n    A[i] = A + 1\n    B[i] = A[i]\n")
    assert "'A' would need ever more dimensions" in mistake.message


def test_an_ellipsis_is_a_row() -> None:
    (mistake,) = mistakes_of(
        'def f(A: Float[Array, "N M"]):\n    for i in range(N): A[i, ...] = 0.0\n'
    )
    assert mistake.remedy == "write `:` for a whole row"
