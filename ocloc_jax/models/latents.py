"""The variational distribution q and samples from it."""

import flax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ocloc_jax.models.noise import Noise


@flax.struct.dataclass
class Posterior:
    """Parameters of q; `presence_logit` is the logit of kappa."""

    view_mean: Float[Array, "*b m ev"]
    view_log_var: Float[Array, "*b m ev"]
    obj_mean: Float[Array, "*b k eo"]
    obj_log_var: Float[Array, "*b k eo"]
    bck_mean: Float[Array, "*b eb"]
    bck_log_var: Float[Array, "*b eb"]
    tau: Float[Array, "*b k 2"]
    presence_logit: Float[Array, "*b k"]


@flax.struct.dataclass
class Latents:
    """What the decoder sees; presence is kept as the logit of its relaxed value."""

    view: Float[Array, "*b m ev"]
    obj: Float[Array, "*b k eo"]
    bck: Float[Array, "*b eb"]
    presence_logit: Float[Array, "*b k"]

    @property
    def presence(self) -> Float[Array, "*b k"]:
        """Soft presence in (0, 1), by which shapes are multiplied."""
        return jax.nn.sigmoid(self.presence_logit)

    @property
    def log_presence(self) -> Float[Array, "*b k"]:
        """Logarithm of the soft presence, exact also where that rounds to 0."""
        return jax.nn.log_sigmoid(self.presence_logit)

    @property
    def count(self) -> Float[Array, "*b"]:
        """Reported number of objects: slots with presence of at least one half."""
        return (self.presence >= 0.5).sum(axis=-1).astype(jnp.float32)


def sample(
    posterior: Posterior, noise: Noise, temperature: Float[Array, ""] | float
) -> Latents:
    """Draws latents by reparameterisation and the relaxed Bernoulli."""
    return Latents(
        view=_normal(posterior.view_mean, posterior.view_log_var, noise.view),
        obj=_normal(posterior.obj_mean, posterior.obj_log_var, noise.obj),
        bck=_normal(posterior.bck_mean, posterior.bck_log_var, noise.bck),
        presence_logit=(posterior.presence_logit + logistic(noise.presence))
        / temperature,
    )


def mode(posterior: Posterior) -> Latents:
    """The most probable latents: means, and presence without noise."""
    return Latents(
        view=posterior.view_mean,
        obj=posterior.obj_mean,
        bck=posterior.bck_mean,
        presence_logit=posterior.presence_logit,
    )


def logistic(uniform: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Logistic noise from uniform draws; a draw of exactly 0 stays finite."""
    uniform = jnp.clip(uniform, 1e-30, 1 - 2**-24)
    return jnp.log(uniform) - jnp.log1p(-uniform)


def _normal(
    mean: Float[Array, "*s"], log_var: Float[Array, "*s"], noise: Float[Array, "*s"]
) -> Float[Array, "*s"]:
    return mean + jnp.exp(0.5 * log_var) * noise
