"""What devices send each other during a step: gradients, and nothing else."""

import re

import jax
import numpy as np
import pytest

from tests.test_train import make_step, random_batch

COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)"
    r"(?:-start)?\("
)


@pytest.fixture(scope="module")
def collectives() -> list[tuple[str, int]]:
    """Kind of each collective of the program for eight devices, and its numbers."""
    step, state, sharding = make_step(8)
    batch = jax.device_put(random_batch(0), sharding)
    text = step.lower(state, batch).compile().as_text()
    return [(kind, _numbers(shapes)) for shapes, kind in COLLECTIVE.findall(text)]


def _numbers(shapes: str) -> int:
    sizes = re.findall(r"\w+\[([\d,]*)\]", shapes)
    return sum(int(np.prod([int(x) for x in size.split(",") if x])) for size in sizes)


def test_devices_meet_once(collectives):
    assert [kind for kind, _ in collectives] == ["all-reduce"]


def test_sums_are_those_of_the_gradient(collectives):
    _, state, _ = make_step(8)
    num_parameters = sum(x.size for x in jax.tree.leaves(state.params))
    total = sum(number for _, number in collectives)
    assert num_parameters <= total < 1.1 * num_parameters + 100
