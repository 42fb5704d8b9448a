"""Programs made ahead: in the right order, once each, and no others."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax import data, programs
from ocloc_jax import scenes as ray_tracer


def shapes(num_views: int):
    return programs.batch_shapes((2,), num_views, (4, 4))


def batch_of(num_views: int, size: int = 4):
    return {
        "image": jnp.zeros((2, num_views, size, size, 3), jnp.uint8),
        "index": jnp.zeros((2,), jnp.int32),
        "views": jnp.zeros((2, num_views), jnp.int32),
    }


class Step:
    """A jitted sum that says when it is compiled, and can be told to wait."""

    def __init__(self):
        self.order, self.gates = [], {}
        self._jitted = jax.jit(lambda s, b: (s + b["image"].shape[1], {}))

    def lower(self, state, batch):
        num_views = batch["image"].shape[1]
        self.order.append(num_views)
        if num_views in self.gates:
            assert self.gates[num_views].wait(60)
        return self._jitted.lower(state, batch)


def test_programs_are_ready_in_the_order_of_need():
    step, said = Step(), []
    planned = {m: shapes(m) for m in (3, 1, 2)}
    with programs.background() as pool:
        ready = programs.Programs(step, jnp.int32(0), planned, pool, said.append)
        state = jnp.int32(0)
        for num_views in (3, 3, 1, 2, 3):
            state, _ = ready(state, batch_of(num_views))
    assert int(state) == 12
    assert sorted(step.order) == [1, 2, 3] and step.order[0] == 3
    assert [line.split(" (")[0] for line in said] == [
        f"compiled {i} of 3 programs" for i in (1, 2, 3)
    ]


def test_training_does_not_wait_for_programs_it_does_not_need():
    """The thread is held up by another program; this one is made beside it."""
    step, said = Step(), []
    step.gates[5] = threading.Event()
    planned = {m: shapes(m) for m in (5, 2)}
    with programs.background() as pool:
        ready = programs.Programs(step, jnp.int32(0), planned, pool, said.append)
        state, _ = ready(jnp.int32(0), batch_of(2))
        assert int(state) == 2 and len(said) == 1
        step.gates[5].set()
        assert int(ready(jnp.int32(0), batch_of(5))[0]) == 5
    assert sorted(step.order) == [2, 5]


def test_leaving_drops_what_nobody_asked_for():
    step = Step()
    step.gates[1] = threading.Event()
    planned = {m: shapes(m) for m in (1, 2, 3)}
    with programs.background() as pool:
        programs.Programs(step, jnp.int32(0), planned, pool, lambda _: None)
    step.gates[1].set()
    for thread in threading.enumerate():
        if thread.name.startswith("compile"):
            thread.join(60)
    assert step.order in ([], [1])


@pytest.mark.parametrize("batch", [batch_of(4), batch_of(2, size=6)])
def test_unplanned_shapes_are_refused(batch):
    step = Step()
    with programs.background() as pool:
        ready = programs.Programs(step, jnp.int32(0), {2: shapes(2)}, pool, print)
        with pytest.raises(ValueError, match=r"programs of this stage are.*2, 2, 4, 4"):
            ready(jnp.int32(0), batch)
    assert step.order in ([], [2])


class Function:
    """A jitted product that counts how often it is compiled ahead."""

    def __init__(self):
        self.lowered = 0
        self._jitted = jax.jit(lambda tree, factor: tree["x"] * factor)

    def __call__(self, *args):
        return self._jitted(*args)

    def lower(self, *args):
        self.lowered += 1
        return self._jitted.lower(*args)


def test_function_is_compiled_once_ahead_or_when_called():
    function = Function()
    ahead = programs.Ahead(function)
    tree = {"x": jnp.arange(3)}
    assert ahead(tree, 2).tolist() == [0, 2, 4] and function.lowered == 0
    with programs.background() as pool:
        ahead.prepare(pool, tree, 2)
        jax.tree.map(lambda x: x.delete(), tree)  # as a step that takes its memory
        for factor in (3, 4):
            assert ahead({"x": jnp.arange(3)}, factor)[1] == factor
    assert function.lowered == 1
    with pytest.raises(TypeError, match=r"compiled with int32\[3\]"):
        ahead({"x": jnp.arange(4)}, 2)


def test_function_does_not_wait_behind_other_programs():
    gate, function = threading.Event(), Function()
    ahead = programs.Ahead(function)
    with programs.background() as pool:
        pool.submit(gate.wait, 60)
        ahead.prepare(pool, {"x": jnp.arange(3)}, 2)
        assert ahead({"x": jnp.arange(3)}, 2).tolist() == [0, 2, 4]
        gate.set()
    assert function.lowered == 1


def make_pipeline(**options) -> data.TrainPipeline:
    images = np.zeros((6, 5, 8, 8, 3), np.uint8)
    scenes = data.ArrayScenes({"image": images})
    return data.TrainPipeline(scenes, 2, seed=3, **options)


def test_upcoming_shapes_are_those_of_the_batches():
    pipeline = make_pipeline(stage="multi", min_views=2, max_views=5)
    ahead = programs.upcoming(pipeline, 4, 10_000)
    assert sorted(ahead) == [2, 3, 4, 5]
    met = [pipeline.num_views_at(step) for step in range(4, 100)]
    assert list(ahead) == list(dict.fromkeys(met))
    for step in range(4, 8):
        batch = pipeline.host_batch(step)
        planned = ahead[batch["image"].shape[1]]
        assert {k: (v.shape, v.dtype) for k, v in planned.items()} == {
            k: (v.shape, v.dtype) for k, v in batch.items()
        }


def test_no_scene_is_rendered_to_know_its_size(monkeypatch):
    scenes = data.RenderedScenes(ray_tracer.SceneSpec(size=8, num_views=2), 0, 4)
    monkeypatch.setattr(scenes, "decode", lambda *_: pytest.fail("rendered"))
    pipeline = data.TrainPipeline(scenes, 2, stage="single")
    (shapes,) = programs.upcoming(pipeline, 0, 10).values()
    assert shapes["image"].shape == (2, 1, 8, 8, 3)


def test_only_what_is_left_of_a_stage_is_planned():
    pipeline = make_pipeline(stage="multi", max_views=5)
    assert programs.upcoming(pipeline, 10, 10) == {}
    assert list(programs.upcoming(pipeline, 9, 10)) == [pipeline.num_views_at(9)]
    single = make_pipeline(stage="single")
    assert list(programs.upcoming(single, 0, 10_000)) == [1]


def test_memory_is_given_back_only_where_the_c_library_can(monkeypatch):
    calls = []

    class Glibc:
        malloc_trim = staticmethod(calls.append)

    monkeypatch.setattr(programs.ctypes, "CDLL", lambda _: Glibc())
    programs.give_back_memory()
    assert calls == [0]
    monkeypatch.setattr(programs.ctypes, "CDLL", lambda _: object())
    programs.give_back_memory()
