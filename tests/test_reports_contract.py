"""The JSON documents, key by key: what a program that reads them may count on."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import islpy as isl
import pytest

from looptrans.ir.facts import LoopFacts, LoopVerdict
from looptrans.reports import (
    render_claims,
    render_components,
    render_dependences,
    render_graph,
    render_loops,
    render_report,
)
from tests.analysis import report
from tests.test_reports_goldens import check_golden
from tests.test_reports_samples import (
    CARRIED,
    FLASH_CLAIMS,
    FLASH_COMPONENTS,
    FLASH_LOOPS,
    HOSTILE,
    HOSTILE_COMPONENTS,
    HOSTILE_TEXT,
    STENCIL,
    STENCIL_COMPONENTS,
    flash_report,
)


def load(text: str) -> Any:
    assert text.endswith("}\n") and text.startswith('{\n  "schema"')
    return json.loads(text)


def test_dependences() -> None:
    document = load(render_dependences(flash_report(), "json"))
    assert list(document) == ["schema", "program", "parameters", "statements", "dependences"]
    assert document["schema"] == "looptrans.deps/1"
    assert document["parameters"] == ["M", "N", "D"]
    assert document["statements"][2] == {
        "label": "S3",
        "text": "m_i = m[i]",
        "line": 14,
        "loops": ["i", "j"],
    }
    found = next(d for d in document["dependences"] if d["source"] == "S12")
    assert found == {
        "kind": "flow",
        "basis": "value",
        "may": False,
        "source": "S12",
        "sink": "S3",
        "array": "m",
        "loops": ["i", "j"],
        "distance": ["0", "1"],
        "direction": ["=", "<"],
        "carried_by": "j",
        "witness": {
            "kind": "order",
            "parameters": {"M": 1, "N": 2},
            "source": {"i": 0, "j": 0},
            "sink": {"i": 0, "j": 1},
        },
    }


def test_additive_keys_only_where_they_say_something() -> None:
    document = load(render_dependences(HOSTILE, "json"))
    assert document["unknown"] == "the budget of 30 s ran out"
    assert document["assumptions"] == ["all(cu[b] <= cu[b + 1] for b in range(B))"]
    assert document["warnings"] and document["statements"][0]["text"] == HOSTILE_TEXT
    first, second, third = document["dependences"]
    assert first["distance_set"].startswith("{ [x]")
    assert first["witness"]["elements"] == {"n[0]": 1}
    assert second["carried_by"] is None and second["witness"] is None
    assert "distance_set" not in third and "instances" not in third


@pytest.mark.parametrize(("factor", "key"), [("2", "distance_set"), ("P", "distance_within")])
def test_a_distance_set_is_exact_or_called_otherwise(factor: str, key: str) -> None:
    text = f"for i in range(N):\n    A[i * {factor}] = A[i]\n"
    document = load(render_dependences(report(text), "json"))
    found = next(d for d in document["dependences"] if d["basis"] == "value")
    assert {"distance_set", "distance_within"} & found.keys() == {key}
    step = 2 if factor == "2" else 3
    occur = {i * step - i for i in range(7) if i < i * step < 7}
    said = distances_at(found[key], {"N": 7, "P": step})
    assert said == occur if key == "distance_set" else said > occur


def distances_at(text: str, sizes: dict[str, int]) -> set[int]:
    """Lists a set of distances over one loop at given sizes."""
    distances = isl.Set(text)
    for number in range(distances.dim(isl.dim_type.param)):
        value = isl.Val(sizes[distances.get_dim_name(isl.dim_type.param, number) or ""])
        distances = distances.fix_val(isl.dim_type.param, number, value)
    found: list[isl.Point] = []
    distances.foreach_point(found.append)
    return {int(p.get_coordinate_val(isl.dim_type.set, 0).to_python()) for p in found}


def test_instances_at_given_sizes() -> None:
    document = load(render_dependences(STENCIL, "json"))
    assert document["dependences"][0]["instances"] == [[[1, 2], [2, 1]]]


def test_components() -> None:
    document = load(render_components(FLASH_COMPONENTS, "json"))
    assert list(document) == ["schema", "graph", "sccs"]
    assert document["schema"] == "looptrans.scc/1" and document["graph"] == "flow"
    assert document["sccs"][3] == {"statements": ["S3", "S6", "S12"], "carried_by": ["j"]}


def test_loops() -> None:
    document = load(render_loops("flash_forward", FLASH_LOOPS, "json"))
    assert list(document) == ["schema", "loops"]
    assert [list(loop) for loop in document["loops"]] == [["loop", "line", "flow", "memory"]] * 3
    assert document["loops"][0]["flow"] == {
        "verdict": "parallel",
        "names": [],
        "operators": [],
        "witness": None,
    }
    memory = document["loops"][1]["memory"]
    assert memory["verdict"] == "reduction"
    assert memory["operators"] == ["max", "+"] and memory["reduced"] == ["m", "l"]
    assert memory["witness"]["sink"] == {"i": 0, "j": 1}
    assert document["loops"][2]["memory"]["reason"] == "the budget of 30 s ran out"
    assert document["loops"][2]["flow"]["assumptions"] == ["H == G * R"]
    everything = LoopVerdict("sequential", ("a",), ("+",), ("s",), CARRIED, "b", "r", ("c",))
    verdict = load(render_loops("p", [LoopFacts("i", 1, everything, everything)], "json"))
    assert set(verdict["loops"][0]["flow"]) == {
        *("verdict", "names", "operators", "witness"),
        *("reduced", "because", "reason", "assumptions"),
    }


def test_graph() -> None:
    report = flash_report(("flow", "anti", "output"))
    document = load(render_graph(report, FLASH_COMPONENTS, "json"))
    assert document["schema"] == "looptrans.ddg/1"
    assert len(document["nodes"]) == 13 and len(document["edges"]) == len(report.dependences)
    assert {"kind", "array", "direction", "distance", "carried_by"} <= set(document["edges"][0])
    assert document["sccs"] == load(render_components(FLASH_COMPONENTS, "json"))["sccs"]


def test_claims() -> None:
    document = load(render_claims("flash_forward", FLASH_CLAIMS, "json"))
    assert document["schema"] == "looptrans.claims/1" and document["program"] == "flash_forward"
    assert [claim["verdict"] for claim in document["claims"]] == [
        *("holds", "holds"),
        *("refuted", "unknown"),
    ]
    assert document["claims"][2]["witness"]["kind"] == "order"
    assert document["claims"][0]["witness"] is None


def test_the_report_holds_the_other_documents_whole() -> None:
    report = flash_report()
    text = render_report(report, [FLASH_COMPONENTS], FLASH_LOOPS, FLASH_CLAIMS, "json")
    document = load(text)
    assert document["schema"] == "looptrans.report/1"
    assert document["deps"] == load(render_dependences(report, "json"))
    assert document["scc"] == [load(render_components(FLASH_COMPONENTS, "json"))]
    assert document["loops"] == load(render_loops("flash_forward", FLASH_LOOPS, "json"))
    assert document["claims"] == load(render_claims("flash_forward", FLASH_CLAIMS, "json"))


def test_json_golden_and_letters_kept() -> None:
    check_golden("reports_stencil.ddg.json", render_graph(STENCIL, STENCIL_COMPONENTS, "json"))
    check_golden("reports_loops.json", render_loops("flash_forward", FLASH_LOOPS, "json"))
    assert "漢" in render_graph(HOSTILE, HOSTILE_COMPONENTS, "json")


def test_a_format_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="scc has the formats text, json, not dot"):
        render_components(FLASH_COMPONENTS, "dot")
    with pytest.raises(ValueError, match="needs sizes"):
        render_dependences(STENCIL, "svg")


def test_reports_load_no_third_party_package() -> None:
    code = """
import sys
import looptrans.reports.render
from looptrans.reports import contract, graph_dot, graph_mermaid, graph_svg, space_svg, text_report
heavy = {"islpy", "networkx", "numpy", "sympy", "torch", "triton"} & set(sys.modules)
ours = {name for name in sys.modules if name.startswith("looptrans.")}
assert not heavy, heavy
ours -= {"looptrans.version"}
assert all(name.startswith(("looptrans.ir", "looptrans.reports")) for name in ours), ours
"""
    subprocess.run([sys.executable, "-c", code], check=True)
