"""Finds the operation that first made a NaN or infinity out of finite numbers.

The program of a function is run in pieces, each compiled as a whole. A piece that was
given finite numbers and returns others is run again operation by operation, and so is
the inside of a loop or call that is found guilty.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core, source_info_util

_PROJECT = pathlib.Path(__file__).parent
_PIECE = 64  # operations compiled together
_CALLS = ("jit", "closed_call", "checkpoint", "remat2")
_CALLS += ("custom_jvp_call", "custom_vjp_call")


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of a program.

    Attributes:
      name: The primitive, such as `log` or `dot_general`.
      module: Modules around it; `transpose(...)` marks the backward pass.
      source: The line of code it comes from.
    """

    name: str
    module: str
    source: str


def find(function: Callable, *args: Any) -> tuple[Any, list[Operation]]:
    """Runs a function; its result, and operations that spoilt finite numbers, in order.

    Operations to which something not finite was handed are not to blame.
    """
    program, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    guilty: list[Operation] = []
    results = _run(program, jax.tree.leaves(args), "", guilty)
    return jax.tree.unflatten(jax.tree.structure(shape), results), guilty


def _run(
    program: core.ClosedJaxpr, inputs: list[Any], around: str, guilty: list[Operation]
) -> list[Any]:
    """Results of a program that is called inside the modules `around`."""
    jaxpr = program.jaxpr
    variables = [*jaxpr.constvars, *jaxpr.invars]
    values = dict(zip(variables, [*program.consts, *inputs], strict=True))
    for piece in _pieces(jaxpr):
        given = {v: values[v] for v in piece.inputs}
        results = jax.jit(piece.evaluate)(list(given.values()))
        if _finite(given.values()) and not _finite(results):
            _search(piece, given, around, guilty)
        values.update(zip(piece.outputs, results, strict=True))
    return [_read(values, atom) for atom in jaxpr.outvars]


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Successive operations, what they need from outside, and what outlives them."""

    equations: list[Any]
    inputs: list[Any]
    outputs: list[Any]

    def evaluate(self, inputs: list[Any]) -> list[Any]:
        """Runs all operations."""
        values = dict(zip(self.inputs, inputs, strict=True))
        for equation in self.equations:
            arguments = [_read(values, atom) for atom in equation.invars]
            values.update(
                zip(equation.outvars, _bind(equation, arguments), strict=True)
            )
        return [values[v] for v in self.outputs]


def _pieces(jaxpr: Any) -> Iterator[_Piece]:
    """Cuts a program into pieces."""
    starts = range(0, len(jaxpr.eqns), _PIECE)
    later = _variables(jaxpr.outvars)
    used = [later]  # by what comes after each piece, from the last one on
    for start in reversed(starts):
        equations = jaxpr.eqns[start : start + _PIECE]
        later = later | {v for e in equations for v in _variables(e.invars)}
        used.append(later)
    for start, later in zip(starts, reversed(used[:-1]), strict=True):
        equations = jaxpr.eqns[start : start + _PIECE]
        made = {v: None for e in equations for v in e.outvars}
        needed = {v: None for e in equations for v in _variables(e.invars)}
        inputs = [v for v in needed if v not in made]
        yield _Piece(equations, inputs, [v for v in made if v in later])


def _search(
    piece: _Piece, given: dict[Any, Any], around: str, guilty: list[Operation]
) -> None:
    """Runs a piece operation by operation."""
    values = dict(given)
    for equation in piece.equations:
        arguments = [_read(values, atom) for atom in equation.invars]
        results = _bind(equation, arguments)
        if _finite(arguments) and not _finite(results):
            _blame(equation, arguments, around, guilty)
        values.update(zip(equation.outvars, results, strict=True))


def _blame(
    equation: Any, arguments: list[Any], around: str, guilty: list[Operation]
) -> None:
    """Adds a guilty operation, or those inside it if it only calls others."""
    stack = str(equation.source_info.name_stack)
    module = "/".join(part for part in (around, stack) if part)
    before = len(guilty)
    if equation.primitive.name == "scan":
        _rounds(equation.params, arguments, module, guilty)
    elif equation.primitive.name == "cond":
        chosen, *arguments = arguments
        _run(equation.params["branches"][int(chosen)], arguments, module, guilty)
    elif equation.primitive.name in _CALLS:
        _run(_called(equation), arguments, module, guilty)
    if len(guilty) == before:
        guilty.append(Operation(equation.primitive.name, module, _source(equation)))


def _source(equation: Any) -> str:
    """The innermost line of this project; of anyone's code if there is none."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback else ():
        if _PROJECT in pathlib.Path(frame.file_name).parents:
            return f"{frame.file_name}:{frame.line_num} ({frame.function_name})"
    return source_info_util.summarize(equation.source_info)


def _rounds(
    options: dict[str, Any], arguments: list[Any], module: str, guilty: list[Operation]
) -> None:
    """Runs a loop round by round until something is found."""
    first = options["num_consts"]
    last = first + options["num_carry"]
    consts, carry = arguments[:first], arguments[first:last]
    order, before = range(options["length"]), len(guilty)
    for i in reversed(order) if options["reverse"] else order:
        inputs = [*consts, *carry, *(rows[i] for rows in arguments[last:])]
        carry = _run(options["jaxpr"], inputs, module, guilty)[: len(carry)]
        if len(guilty) > before:
            return


def _called(equation: Any) -> core.ClosedJaxpr:
    found = (equation.params.get(key) for key in ("jaxpr", "call_jaxpr"))
    program = next(program for program in found if program is not None)
    is_closed = isinstance(program, core.ClosedJaxpr)
    return program if is_closed else core.ClosedJaxpr(program, ())


def _bind(equation: Any, arguments: list[Any]) -> list[Any]:
    options = equation.primitive.get_bind_params(equation.params)
    with equation.ctx.manager:
        results = equation.primitive.bind(*arguments, **options)
    return results if equation.primitive.multiple_results else [results]


def _variables(atoms: Iterable[Any]) -> set[Any]:
    return {atom for atom in atoms if not isinstance(atom, core.Literal)}


def _read(values: dict[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, core.Literal) else values[atom]


def _finite(arrays: Iterable[Any]) -> bool:
    floats = [x for x in arrays if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    # NumPy's `isfinite` does not know bfloat16.
    return all(np.isfinite(np.asarray(x).astype(np.float64)).all() for x in floats)
