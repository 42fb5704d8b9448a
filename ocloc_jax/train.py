"""Training and validation steps: pure functions of a state and a batch."""

import functools
from collections.abc import Callable
from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ocloc_jax import data, gradients, losses, schedules
from ocloc_jax.gradients import Metrics
from ocloc_jax.losses import Objective
from ocloc_jax.metrics.training import training_metrics
from ocloc_jax.models import noise as noise_lib
from ocloc_jax.models.ocloc import Ocloc, Outputs

TrainStep = Callable[..., tuple["TrainState", Metrics]]  # see `make_train_step`
EvalStep = Callable[[PyTree, data.Batch, PRNGKeyArray], dict[str, Array]]


@flax.struct.dataclass
class TrainState:
    """All that is needed to resume the same run.

    Fields are not checked: Orbax rebuilds the structure around placeholders.
    """

    step: Any  # int32, updates made so far
    params: Any
    opt_state: Any
    key: Any  # root key: folded with `step`, never split
    dead_logs: Any = None  # int32 [s], see `ocloc_jax.health`; None without early stop


def create_state(
    params: PyTree, optimizer: optax.GradientTransformation, seed: int
) -> TrainState:
    """A state before its first update."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        # As one program: array by array it takes a second.
        opt_state=jax.jit(optimizer.init)(params),
        key=jax.random.key(seed),
    )


def forward(
    model: Ocloc,
    params: PyTree,
    images: Float[Array, "b m h w 3"],
    key: PRNGKeyArray,
    coefficients: schedules.Coefficients,
    objective: Objective,
) -> tuple[Float[Array, " b"], losses.Terms, Outputs]:
    """The objective of every scene, its terms, and all outputs of the model."""
    noise = draw_noise(model, images, key, coefficients, objective)
    return evaluate(model, params, images, noise, coefficients, objective)


def draw_noise(
    model: Ocloc,
    images: Float[Array, "b m h w 3"],
    key: PRNGKeyArray,
    coefficients: schedules.Coefficients,
    objective: Objective,
) -> noise_lib.Noise:
    """Every random draw of a training step, for all scenes of a batch.

    What no schedule ever gives a weight is not drawn, nor computed with.
    """
    never = schedules.is_never
    annealed = model.mode == "released" and not (
        never(1 - coefficients.ratio_stick_breaking)
        and never(1 - coefficients.ratio_mixture)
    )
    noisy = not (never(coefficients.noise_min) and never(coefficients.noise_max))
    return noise_lib.draw(
        key,
        model.sizes,
        batch=images.shape[:1],
        num_views=images.shape[1],
        num_slots=objective.num_slots,
        image_size=images.shape[2:4] if annealed else None,
        shadows=model.shadows,
        appearance=noisy,
    )


def evaluate(
    model: Ocloc,
    params: PyTree,
    images: Float[Array, "b m h w 3"],
    noise: noise_lib.Noise,
    coefficients: schedules.Coefficients,
    objective: Objective,
) -> tuple[Float[Array, " b"], losses.Terms, Outputs]:
    """As `forward`, with draws that are given."""
    outputs = model.apply({"params": params}, images, noise, coefficients)
    options = dict(sigma_x=objective.sigma_x, alpha=objective.alpha, mode=model.mode)
    terms = losses.loss_terms(outputs, images, coefficients, **options)
    return losses.weigh(terms, coefficients, model.mode), terms, outputs


def make_train_step(
    model: Ocloc,
    optimizer: optax.GradientTransformation,
    table: schedules.Table,
    objective: Objective,
    accumulate: int = 1,
    images_at_a_time: int = 0,
) -> TrainStep:
    """A function (state, batch) -> (state, metrics), to be jitted once per shape.

    With `accumulate` the gradient is that of the whole batch, but summed over so many
    parts of it one after another, which needs as much less memory; so does decoding
    `images_at_a_time` (see `gradients`). Given a `mesh` over
    whose axis `data` the batch is split, every device takes the gradient of its own
    scenes, and these meet once, at the end. (Left to itself, XLA on a CPU adds them up
    after every iteration of the encoder.)
    """

    def train_step(
        state: TrainState, batch: data.Batch, mesh: Mesh | AbstractMesh | None = None
    ) -> tuple[TrainState, Metrics]:
        coefficients = schedules.coefficients(table, state.step + 1)
        key = jax.random.fold_in(state.key, state.step)
        images = data.to_model_range(batch["image"])
        noise = draw_noise(model, images, key, coefficients, objective)

        def gradient(params: PyTree, batch: tuple) -> tuple[PyTree, Metrics]:
            of_part = functools.partial(gradients.gradient, model, params)
            rest = coefficients, objective, images_at_a_time
            return mean_over_parts(lambda p: of_part(*p, *rest), batch, accumulate)

        if mesh is not None and mesh.size > 1:
            gradient = mean_over_devices(gradient, mesh)
        grads, metrics = gradient(state.params, (images, noise))
        grads = hold_back(grads, coefficients.ratio_dec)
        metrics |= {"grad_norm": jnp.linalg.norm(ravel_pytree(grads)[0])}
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        state = state.replace(step=state.step + 1, params=params, opt_state=opt_state)
        return state, metrics

    return train_step


def mean_over_parts(
    fn: Callable[[PyTree], PyTree], batch: PyTree, num_parts: int
) -> PyTree:
    """The mean of `fn` over equal parts of a batch, computed one after another."""
    if num_parts == 1:
        return fn(batch)

    def split(x: Array) -> Array:
        # Every n-th row, so that each part lies on all devices like the batch.
        rows = x.reshape(x.shape[0] // num_parts, num_parts, *x.shape[1:])
        return jnp.moveaxis(rows, 1, 0)

    def add(total: PyTree, part: PyTree) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, fn(part)), None

    parts = jax.tree.map(split, batch)
    shapes = jax.eval_shape(fn, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    total, _ = jax.lax.scan(add, zeros, parts)
    return jax.tree.map(lambda x: x / num_parts, total)


def mean_over_devices(
    fn: Callable[[PyTree, PyTree], PyTree], mesh: Mesh | AbstractMesh
) -> Callable[[PyTree, PyTree], PyTree]:
    """Applies `fn(params, batch)` to the scenes of each device; the mean of them."""

    def mean(params: PyTree, batch: PyTree) -> PyTree:
        # As one vector: a hundred small ones take seven times as long on a CPU.
        vector, restore = ravel_pytree(fn(params, batch))
        return restore(jax.lax.pmean(vector, "data"))

    return jax.shard_map(
        mean,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("data")),
        out_specs=PartitionSpec(),
        check_vma=False,  # or gradients would meet where parameters are used
    )


def hold_back(grads: PyTree, ratio: Float[Array, ""] | float) -> PyTree:
    """Scales the gradients of the decoder and of the encoder's features."""

    def scale(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda g: ratio * g, tree)

    encoder = {
        **grads["encoder"],
        "feature_net": scale(grads["encoder"]["feature_net"]),
    }
    return {**grads, "encoder": encoder, "decoder": scale(grads["decoder"])}


def make_eval_step(
    model: Ocloc, coefficients: schedules.Coefficients, objective: Objective
) -> EvalStep:
    """A function (params, batch, key) -> numbers of every scene."""

    def eval_step(
        params: PyTree, batch: data.Batch, key: PRNGKeyArray
    ) -> dict[str, Array]:
        images = data.to_model_range(batch["image"])
        loss, terms, outputs = forward(
            model, params, images, key, coefficients, objective
        )
        numbers = {"loss": loss, **terms}
        if "segment" in batch:
            numbers |= _scores(outputs, images, batch)
        return numbers

    return eval_step


def _scores(outputs: Outputs, images: Array, batch: data.Batch) -> dict[str, Array]:
    scene = outputs.scene
    arrays = dict(
        mask_obj=scene.mask_obj,
        mask_bck=scene.mask_bck,
        recon=scene.recon,
        image=images,
        presence=outputs.latents.presence,
        segment=batch["segment"],
        overlap=batch["overlap"],
    )
    return jax.vmap(lambda scene: training_metrics(**scene))(arrays)


def jit_data_parallel(step: TrainStep, split: NamedSharding) -> TrainStep:
    """Compiles a step for a batch split over devices; the state is on all of them."""
    whole = NamedSharding(split.mesh, PartitionSpec())
    return jax.jit(
        functools.partial(step, mesh=split.mesh),
        in_shardings=(whole, split),
        out_shardings=whole,
        donate_argnums=0,
    )
