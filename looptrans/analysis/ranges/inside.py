"""The sizes at which a listing stays inside its arrays; at others it has no meaning to preserve."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from looptrans.analysis.isl_model.formula import conjunction
from looptrans.analysis.isl_model.model import AccessModel, Model
from looptrans.analysis.isl_model.polyhedra import access_map, domain_formula, tuple_text
from looptrans.ir.index import Index, opaque_terms, variables

INSIDE = "every subscript of the listing stays inside its array"


def sizes_inside(model: Model, context: isl.Set) -> isl.Set:
    """Return the sizes of a context at which no access that surely happens leaves its array.

    Args:
        model: The program.
        context: What is known of the parameters.
    """
    for access in model.accesses:
        if access.is_may or access.all_terms:
            continue
        cells, _ = inner_box(model, access.array)
        outside = cells_of(model, access).subtract_range(cells).intersect_params(context)
        if not outside.is_empty():
            context = context.subtract(outside.params())
    return context


def leave_too_little(model: Model, context: isl.Set, inside: isl.Set) -> bool:
    """Tell whether a loop that may have several iterations has one at most, at the sizes inside.

        for i in range(N): A[i] = A[i - 1]          inside for N <= 0 only, where any step is legal

    Args:
        model: The program.
        context: What is known of the parameters.
        inside: At which of them the listing stays inside its arrays.
    """
    if inside.is_empty():
        return True
    for statement in model.statements:
        text = f"{tuple_text(statement)} : {domain_formula(model, statement)}"
        domain = isl.Set(f"{model.prefix}{{ {text} }}")
        few, every = (
            isl.Map.from_range(domain.intersect_params(sizes)).reset_tuple_id(isl.dim_type.out)
            for sizes in (inside, context)
        )
        for level in range(statement.depth):
            one = _iterations(few, level).is_single_valued()
            if one and not _iterations(every, level).is_single_valued():
                return True
    return False


def _iterations(instances: isl.Map, level: int) -> isl.Map:
    """Map iterations of the loops around one to its own."""
    inner = instances.dim(isl.dim_type.out) - level - 1
    outer = instances.project_out(isl.dim_type.out, level + 1, inner)
    return outer.move_dims(isl.dim_type.in_, 0, isl.dim_type.out, 0, level)


def _box(model: Model, shape: tuple[Index | None, ...]) -> isl.Set:
    notation = model.notation({})
    dims = [f"x{number}" for number in range(len(shape))]
    inside = [f"{dim} >= 0" for dim in dims]
    inside += [
        f"{dim} < {notation.index(extent)}"
        for dim, extent in zip(dims, shape, strict=True)
        if extent is not None
    ]
    return isl.Set(f"{model.prefix}{{ a0[{', '.join(dims)}] : {conjunction(inside)} }}")


def box(model: Model, array: str) -> isl.Set | None:
    """Return the cells an array has; None where an extent is not known."""
    cells, open_ = inner_box(model, array)
    return None if open_ else cells


def inner_box(model: Model, array: str) -> tuple[isl.Set, list[int]]:
    """Return the box of an array, without an end in the dimensions whose extent is not known."""
    shape = tuple(e if _is_known(e) else None for e in written_shape(model, array))
    return _box(model, shape), [number for number, e in enumerate(shape) if e is None]


def _is_known(extent: Index | None) -> bool:
    return extent is not None and not variables(extent) and not opaque_terms(extent)


def written_shape(model: Model, array: str) -> tuple[Index | None, ...]:
    """Return the extents of an array without those that tell its private copies apart."""
    hidden = max((a.private for a in model.accesses if a.array == array), default=0)
    return model.shapes[array][hidden:]


def cells_of(model: Model, access: AccessModel) -> isl.Map:
    """Map the instances of a statement to the cells an access touches, copies taken as one."""
    plain = replace(access, subscripts=access.subscripts[access.private :], private=0)
    shapes = {**model.shapes, access.array: written_shape(model, access.array)}
    return access_map(replace(model, shapes=shapes), plain, 0)
