"""Floating-point operations of a program, counted before any compiler sees it.

Only matrix products and convolutions count, a multiplication and an addition each:
they are nearly all of it. Compilers' own figures take the body of a loop for one
round, so they miss most of a scan; here it counts as often as it runs. What CPUs
compute in another way is counted as GPUs and TPUs do it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core


def count(fn: Callable[..., Any], *args: Any) -> int:
    """Operations of one call, from the shapes of its arguments.

    Args:
      fn: Any function that JAX can trace.
      *args: Arrays, or their shapes.
    """
    return _jaxpr(jax.make_jaxpr(fn)(*args).jaxpr)


def _jaxpr(jaxpr: core.Jaxpr) -> int:
    return sum(_equation(equation) for equation in jaxpr.eqns)


def _equation(equation: core.JaxprEqn) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return _product(equation)
    if name == "conv_general_dilated":
        return _convolution(equation)
    inner = [_jaxpr(jaxpr) for jaxpr in _inside(params)]
    if name == "cond":
        platforms = params.get("branches_platforms")
        return inner[platforms.index(None)] if platforms else max(inner)
    return sum(inner) * _times(name, params)


def _times(name: str, params: dict[str, Any]) -> int:
    """How often the inside of an operation is done, on all devices together."""
    if name == "shard_map":
        return math.prod(
            params["mesh"].shape[axis] for axis in params["newly_manual_axes"]
        )
    return params["length"] if name == "scan" else 1


def _product(equation: core.JaxprEqn) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    size = math.prod(shape[axis] for axis in contracted)
    return 2 * math.prod(equation.outvars[0].aval.shape) * size


def _convolution(equation: core.JaxprEqn) -> int:
    kernel = equation.invars[1].aval.shape
    _, channels, *window = equation.params["dimension_numbers"].rhs_spec
    taps = kernel[channels] * math.prod(kernel[axis] for axis in window)
    out = math.prod(equation.outvars[0].aval.shape)
    # Zeros that a stride puts between inputs are no work.
    return 2 * out * taps // math.prod(equation.params["lhs_dilation"])


def _inside(params: dict[str, Any]) -> Iterator[core.Jaxpr]:
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item
