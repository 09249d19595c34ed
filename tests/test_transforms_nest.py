"""Finding loops and statements, editing the tree, naming, and what is done after an edit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from looptrans.frontend import parse
from looptrans.ir.affine import (
    difference,
    extremum,
    is_same,
    quotient,
    remainder,
    simplified,
    total,
)
from looptrans.ir.index import Arith, Index, Int, Neg, Param, Var
from looptrans.ir.listing import index_text, listing
from looptrans.ir.program import Array, Assign, Barrier, Declaration, If, Loop, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.source import Source
from looptrans.ir.step import same_names
from looptrans.ir.value import Create
from looptrans.transforms.editing.errors import NEST_MISTAKES, NameInUse, TransformError
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_label, fresh_name, with_array
from looptrans.transforms.editing.substitute import (
    rename_variable,
    substitute_variable,
    without_binders,
)
from looptrans.transforms.editing.tree import (
    block_at,
    find_loop,
    find_statement,
    is_node,
    loop_name,
    loop_paths,
    loops_around,
    node_at,
    replace_at,
    statements_in,
    walk_positions,
)


def read(text: str) -> Program:
    return parse(Source("t.py", text))


TWO = """\
def f(A, B, N):
    for i in range(0, N):
        A[i] = 1.0  # S1: first
        if i > 2:
            for j in range(0, i):
                B[i, j] = A[j]
        else:
            B[i, 0] = 0.0
        for j in range(0, N):
            B[i, j] = 2.0 * B[i, j]
    for i in range(0, N): A[i] = B[i, i]
"""


def message(program: Program, name: str) -> str:
    with pytest.raises(TransformError) as caught:
        find_loop(program, name)
    return caught.value.render(program.source)


# Finding


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("i@2", (0,)),
        ("i@S1", (0,)),
        ("i@S4", (0,)),
        ("j@5", (0, 1, 1, 0)),
        ("j@S2", (0, 1, 1, 0)),
        ("j@S4", (0, 2)),
        ("i@11", (1,)),
        ("i@S5", (1,)),
    ],
)
def test_a_loop_is_found_by_line_or_by_statement(name: str, position: tuple[int, ...]) -> None:
    assert find_loop(read(TWO), name).position == position


def test_a_variable_alone_is_enough_where_one_loop_has_it() -> None:
    program = read("for i in range(N):\n    for k in range(i): A[i, k] = 1.0\n")
    assert find_loop(program, "k").loop.variable == "k"
    assert loop_name(program, (0, 0)) == "k"


def test_an_ambiguous_loop_lists_the_choices() -> None:
    assert message(read(TWO), "j") == (
        "error[E045]: 2 loops are called j\n"
        "  t.py:5:13 | for j in range(0, i):\n"
        "              ^^^^^^^^^^^^^^^^^^^^^\n"
        "  the transformation is about one of them\n"
        "  help: say which: j@5, j@9"
    )


def test_loops_on_one_line_are_told_apart_by_a_statement() -> None:
    program = read("for i in range(N): A[i] = 1.0\nfor i in range(N): A[i] = 2.0\n")
    second = replace(program.body[1], span=program.body[0].span)
    program = replace(program, body=(program.body[0], second))
    assert "say which: i@S1, i@S2" in message(program, "i")
    assert [loop_name(program, path.position) for path in loop_paths(program)] == ["i@S1", "i@S2"]


def test_a_loop_that_is_not_there_lists_those_that_are() -> None:
    assert message(read(TWO), "k") == (
        "error[E044]: there is no loop k\n"
        "  t.py\n"
        "  the loops are i@2, j@5, j@9, i@11\n"
        "  help: name a loop by its variable, j, by j@LINE, or by a statement in it, j@S7"
    )
    assert "there is no j loop on line 7" in message(read(TWO), "j@7")
    assert "the j loops are j@5, j@9" in message(read(TWO), "j@7")
    assert "there is no j loop around S1" in message(read(TWO), "j@S1")
    assert "there is no statement S9" in message(read(TWO), "j@S9")


def test_every_name_a_loop_is_given_finds_that_loop() -> None:
    program = read(TWO)
    for path in loop_paths(program):
        assert find_loop(program, loop_name(program, path.position)) == path


def test_a_statement_is_found_by_its_label_or_not() -> None:
    program = read("for i in range(N):\n    if A[i] > 0.0: A[i] = 1.0\n")
    assert find_statement(program, "G1").position == (0, 0, 0)
    assert find_statement(program, "S1").position == (0, 0, 1, 0)
    with pytest.raises(TransformError, match="there is no statement S2"):
        find_statement(program, "S2")


# Positions


def test_positions_lead_to_nodes() -> None:
    program = read(TWO)
    assert isinstance(node_at(program, (0, 1)), If)
    assert isinstance(node_at(program, (0, 1, 0)), If)
    assert node_at(program, (0, 1, 2, 0)) is find_statement(program, "S3").node
    assert not is_node(program, (0, 1, 1))
    assert is_node(program, (0, 1, 0))
    assert [path.variable for path in loops_around(program, (0, 1, 1, 0, 0))] == ["i", "j"]
    assert block_at(program, (0, 1, 2, 0)) == node_at(program, (0, 1)).orelse  # type: ignore[union-attr]
    for position, node in walk_positions(program.body):
        assert node_at(program, position) is node


@pytest.mark.parametrize("position", [(0,), (0, 0), (0, 1), (0, 1, 1, 0, 0), (0, 1, 2, 0), (1, 0)])
def test_a_node_is_replaced_where_it_stands_and_nowhere_else(position: tuple[int, ...]) -> None:
    program = read(TWO)
    marks = (Barrier("one"), Barrier("two"))
    edited = replace_at(program, position, marks)
    assert block_at(edited, position)[position[-1] : position[-1] + 2] == marks
    assert len(block_at(edited, position)) == len(block_at(program, position)) + 1
    gone = replace_at(program, position, ())
    assert sorted(statements_in(gone.body) + statements_in((node_at(program, position),))) == [
        "S1",
        "S2",
        "S3",
        "S4",
        "S5",
    ]
    assert program == read(TWO)


def test_rewritten_sees_inner_nodes_first() -> None:
    seen: list[str] = []

    def note(node: object) -> tuple[()]:
        seen.append(type(node).__name__)
        return ()

    rewritten(read(TWO).body[:1], note)
    assert seen == ["Assign", "Assign", "Loop", "Assign", "If", "Assign", "Loop", "Loop"]


# Names


def test_fresh_names_meet_nothing() -> None:
    text = "def f(A, j0, n):\n    for j in range(n):\n"
    text += "        A[j] = j0 + sum(A[j1] for j1 in range(j)) + self.k\n"
    program = read(text.replace("def f(A", "def f(self, A"))
    assert fresh_name(program, "j0") == "j2"
    assert fresh_name(program, "A") == "A1"
    assert fresh_name(program, "self") == "self1"
    assert fresh_name(program, "max") == "max1"
    assert fresh_name(program, "if") == "if1"
    assert fresh_name(program, "match") == "match1"
    assert fresh_name(program, "t") == "t"
    assert fresh_name(program, "t", {"t", "t1"}) == "t2"
    assert fresh_label(program) == "S2"


def test_a_local_array_is_added_with_its_creation() -> None:
    program = read("def f(A, N):\n    B = zeros(N)\n    for i in range(N): A[i] = B[i]\n")
    creation = Declaration("t", Create("zeros", (Param("N"),)))
    array = Array("t", 1, "float", "local", (Param("N"),))
    grown, shift = with_array(program, array, creation)
    assert shift == 1
    assert [type(node) for node in grown.body] == [Declaration, Declaration, Loop]
    assert grown.body[1] == creation
    assert grown.array("t") == array
    with pytest.raises(NameInUse):
        with_array(program, replace(array, name="B"), None)


# Replacing variables


def test_a_variable_is_replaced_everywhere() -> None:
    text = "for i in range(N):\n    for j in range(M):\n        k = j + 1\n"
    text += "        if j > i and A[k, 2 * j] > 0.0:\n"
    text += (
        "            A[i - j, idx[j]] = (j - i) * 0.5 + sum(A[e, j] for e in range(j) if e < j)\n"
    )
    text += "        for l in range(j, j + 3): A[l, k] += i\n"
    program = read(
        "def f(A, idx: Int[Array, 'M'], N, M):\n"
        + "".join(f"    {line}\n" for line in text.splitlines())
    )
    inner = find_loop(program, "j")
    plain = Arith("-", Var("j"), Var("i"))
    body = tuple(substitute_variable(node, {"j": plain}) for node in inner.loop.body)
    after = replace_at(program, (*inner.position,), (replace(inner.loop, body=body),))
    assert listing(after).splitlines()[3:] == [
        "            k = j - i + 1",
        "            if j - i > i and A[k, 2 * j - 2 * i] > 0.0:",
        "                A[2 * i - j, idx[j - i]] = (j - 2 * i) * 0.5 + "
        "sum(A[e, j - i] for e in range(0, j - i) if e < j - i)",
        "            for l in range(j - i, j - i + 3):",
        "                A[l, k] += i",
    ]
    assert read(listing(after)) == after


def test_what_a_sum_binds_anew_is_left_alone() -> None:
    program = read("for i in range(N):\n    A[i] = sum(B[j] for j in range(i))\n")
    node = program.body[0]
    assert isinstance(node, Loop)
    assert substitute_variable(node.body[0], {"j": Int(3)}) == node.body[0]


def test_a_turn_is_renamed_with_its_loop() -> None:
    text = "for j in parallel(0, N):\n    with atomic(turn=j):\n        A[0] = A[0] + B[j]\n"
    program = read(text)
    loop = program.body[0]
    assert isinstance(loop, Loop)
    renamed = replace(program, body=(rename_variable(loop, "j", "t"),))
    assert listing(renamed) == text.replace("(turn=j)", "(turn=t)").replace("[j]", "[t]").replace(
        "for j", "for t"
    )


def test_inner_binders_get_other_names() -> None:
    text = "for j in range(N):\n    for i in range(j):\n"
    text += "        A[i, j] = sum(A[i1, i] for i1 in range(i))\n"
    program = read(text)
    freed = without_binders(program, program.body[0], frozenset(("i", "j")))
    assert listing(replace(program, body=(freed,))) == (
        "for j in range(0, N):\n    for i2 in range(0, j):\n"
        "        A[i2, j] = sum(A[i1, i2] for i1 in range(0, i2))\n"
    )


# Sums


V, J, N = Var("i"), Var("j"), Param("N")


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Arith("-", V, Arith("-", J, V)), "2 * i - j"),
        (Neg(V), "-i"),
        (Arith("-", Int(3), V), "3 - i"),
        (Arith("-", Neg(V), Int(3)), "-i - 3"),
        (Arith("*", Arith("+", V, Int(1)), Int(-2)), "-2 * i - 2"),
        (Arith("-", V, V), "0"),
        (Arith("//", Arith("+", Arith("*", Int(4), V), Int(7)), Int(4)), "i + 1"),
        (Arith("%", Arith("+", Arith("*", Int(4), V), Int(7)), Int(4)), "3"),
        (Arith("//", Arith("+", Arith("*", Int(2), V), Int(7)), Int(4)), "(2 * i + 7) // 4"),
        (Arith("*", N, Arith("-", J, V)), "N * (j - i)"),
        (extremum("min", (V, extremum("min", (J, Arith("+", V, Int(2)))))), "min(i, j)"),
        (extremum("max", (Arith("+", V, Int(1)), V)), "i + 1"),
        (total(V, 2, Neg(V)), "2"),
        (difference(N, Arith("-", N, Int(1))), "1"),
        (quotient(Arith("*", Int(6), V), 3), "2 * i"),
        (remainder(J, 3), "j % 3"),
    ],
)
def test_sums_are_gathered(index: Index, text: str) -> None:
    assert index_text(simplified(index)) == text


def test_sums_that_are_equal_are_seen_to_be() -> None:
    assert is_same(Arith("-", Arith("+", V, J), J), V)
    assert not is_same(V, J)


# After an edit


def test_labels_stay_where_the_order_of_the_text_does_not_change() -> None:
    program = read("for i in range(N):\n    A[i] = 1.0  # one\n    B[i] = 2.0\n")
    after, images = finished(program, same_names(program, program))
    assert after == program
    assert set(images) == {"S1", "S2"}


def test_labels_are_written_down_where_the_text_would_give_others() -> None:
    program = read(
        "for i in range(N):\n    A[i] = 1.0  # one\n    B[i] = 2.0\n    C[i] = 3.0 # S7\n"
    )
    loop = program.body[0]
    assert isinstance(loop, Loop)
    turned = replace(program, body=(replace(loop, body=loop.body[::-1]),))
    after, images = finished(turned, same_names(program, turned))
    assert listing(after).splitlines()[1:] == [
        "    C[i] = 3.0  # S7",
        "    B[i] = 2.0  # S2",
        "    A[i] = 1.0  # S1: one",
    ]
    assert read(listing(after)) == after
    assert set(images) == {"S1", "S2", "S7"}


def test_conditions_get_the_labels_the_text_will_give_them() -> None:
    program = read(
        "for i in range(N):\n    if A[i] > 0.0: B[i] = 1.0\n    if C[i] > 0.0: B[i] = 2.0\n"
    )
    loop = program.body[0]
    assert isinstance(loop, Loop)
    turned = replace(program, body=(replace(loop, body=loop.body[::-1]),))
    after, images = finished(turned, same_names(program, turned))
    assert {label: image.statement for label, image in images.items()} == {
        "G1": "G2",
        "G2": "G1",
        "S1": "S1",
        "S2": "S2",
    }
    assert read(listing(after)) == after


def test_arrays_and_sizes_are_put_in_order_and_dropped() -> None:
    text = "def f(x):\n    t = zeros(N)\n    for i in range(N): t[i] = x[i]\n"
    text += "    for k in range(K): x[k] = y[k, 0]\n    for m in range(M): y[m, 0] = x[m]\n"
    program = read(text.replace("def f(x)", "def f(x, y)"))
    body = (program.body[3], program.body[2])
    after, _ = finished(replace(program, body=body), {})
    assert [parameter.name for parameter in after.parameters] == ["M", "K"]
    assert [array.name for array in after.arrays] == ["x", "y"]


def test_shapes_read_off_arrays_are_put_in_order() -> None:
    text = "def f(A, B):\n    for i in range(A.shape[0]):\n        for j in range(B.shape[0]):\n"
    program = read(text + "            A[i] = B[j]\n")
    outer = program.body[0]
    assert isinstance(outer, Loop)
    inner = outer.body[0]
    assert isinstance(inner, Loop)
    turned = (replace(inner, body=(replace(outer, body=inner.body),)),)
    after, _ = finished(replace(program, body=turned), {})
    assert read(listing(after)) == after


def test_a_function_that_is_also_a_name_is_pointed_out() -> None:
    program = read("def f(min, N):\n    for i in range(N): min[i] = 1.0\n")
    loop = program.body[0]
    assert isinstance(loop, Loop)
    bounds = replace(loop.range, stop=extremum("min", (N, Int(3))))
    with pytest.raises(NameInUse) as caught:
        finished(replace(program, body=(replace(loop, range=bounds),)), {})
    assert caught.value.render(program.source) == (
        "error[E056]: the transformed program needs the language's min, and min is a name of the "
        "listing\n"
        "  t.py:1:7 | def f(min, N):\n"
        "                   ^^^\n"
        "  one name cannot mean both\n"
        "  help: rename the one of the listing, e.g. min_"
    )


def test_every_mistake_has_a_code_of_its_own() -> None:
    codes = [mistake.code for mistake in NEST_MISTAKES]
    assert len(set(codes)) == len(codes)
    assert all(mistake.title != "mistake" and mistake.__doc__ for mistake in NEST_MISTAKES)


def test_statements_in_a_block_are_listed_in_order() -> None:
    assert statements_in(read(TWO).body) == ("S1", "S2", "S3", "S4", "S5")
    assert isinstance(find_statement(read(TWO), "S5").node, Assign)
