"""OCLOC: encoder, sampling, decoder and composition as one Flax module."""

import flax
import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ocloc_jax.models import compose, latents, layers
from ocloc_jax.models.compose import Scene
from ocloc_jax.models.decoder import Decoder, Layers
from ocloc_jax.models.encoder import Encoder, Slots
from ocloc_jax.models.latents import Latents, Posterior
from ocloc_jax.models.noise import Noise
from ocloc_jax.models.sizes import CLEVR, ModelSizes, check_image_size
from ocloc_jax.schedules import Coefficients

REMAT = ("none", "encoder", "decoder", "all")


@flax.struct.dataclass
class Outputs:
    """Everything a forward pass computes; losses, metrics and figures pick from it."""

    slots: Slots
    posterior: Posterior
    latents: Latents
    layers: Layers
    scene: Scene


class Ocloc(nn.Module):
    """The whole model, for any number of viewpoints and slots at call time.

    Start it with `ocloc_jax.models.initial.init`; the module's own `init` gives the
    parameters their shapes but Flax's usual distributions.

    Attributes:
      sizes: Sizes of the networks.
      shadows: Whether objects cast shadows (False is the paper's ablation).
      mode: "released" or "paper".
      num_iterations: T.
      remat: What the backward pass computes again instead of keeping it in memory:
        "none", the inside of "encoder" (features and refinements), of "decoder"
        (image networks and composition), or "all". Gradients stay the same.
      dtype: Compute precision of the networks ("float32" or "bfloat16"); parameters,
        slot softmax, GRU, masks and losses are float32.
      num_parts: Into how many parts the image networks' batches are cut, for the
        threads of a CPU; see `layers.in_parts`. 1 is right for everything else.
    """

    sizes: ModelSizes = CLEVR
    shadows: bool = True
    mode: str = "released"
    num_iterations: int = 3
    remat: str = "none"
    dtype: layers.Dtype = jnp.float32
    num_parts: int = 1

    def setup(self) -> None:
        if self.mode not in compose.MODES:
            raise ValueError(f"Unknown mode {self.mode!r}; use one of {compose.MODES}.")
        if self.remat not in REMAT:
            raise ValueError(f"Unknown remat {self.remat!r}; use one of {REMAT}.")
        dtype = jnp.dtype(self.dtype)
        remat_encoder = self.remat in ("encoder", "all")
        self.encoder = Encoder(
            self.sizes, self.num_iterations, remat_encoder, dtype, self.num_parts
        )
        self.decoder = Decoder(
            self.sizes, self.shadows, dtype, self.remat_decoder, self.num_parts
        )

    @property
    def remat_decoder(self) -> bool:
        """Whether image networks and composition are computed again."""
        return self.remat in ("decoder", "all")

    def __call__(
        self,
        images: Float[Array, "*b m h w 3"],
        noise: Noise,
        coefficients: Coefficients | None = None,
    ) -> Outputs:
        """Infers, samples and reconstructs.

        Args:
          images: Views of each scene in [-1, 1].
          noise: Every random draw; its slot noise decides the number of slots.
          coefficients: Of the schedule; by default as after training.
        """
        coefficients = coefficients or Coefficients()
        slots, posterior, sampled = self.encode(images, noise, coefficients)
        size = images.shape[-3:-1]
        decoded, scene = self.render(sampled, noise, coefficients, *size)
        return Outputs(slots, posterior, sampled, decoded, scene)

    def encode(
        self,
        images: Float[Array, "*b m h w 3"],
        noise: Noise,
        coefficients: Coefficients,
    ) -> tuple[Slots, Posterior, Latents]:
        """Infers and samples: here all views of a scene meet."""
        slots = self.infer_slots(images, noise)
        posterior = self.encoder.posterior(slots)
        sampled = latents.sample(posterior, noise, coefficients.temp_pres)
        return slots, posterior, sampled

    def render(
        self,
        sampled: Latents,
        noise: Noise,
        coefficients: Coefficients,
        height: int,
        width: int,
    ) -> tuple[Layers, Scene]:
        """Reconstructs: every view by itself, as the latents tell."""
        decoded = self.decode(sampled, height, width)
        composed = compose.compose
        if self.remat_decoder:
            composed = jax.checkpoint(composed, static_argnums=4)
        return decoded, composed(decoded, sampled, coefficients, noise, self.mode)

    def infer_slots(self, images: Float[Array, "*b m h w 3"], noise: Noise) -> Slots:
        """Refined slots from images and the noise of the initial ones."""
        slots = self.encoder.initial_slots(noise.slot_view, noise.slot_attr)
        return self.encoder.refine(self.encoder.features(images), slots)

    def features(
        self, images: Float[Array, "*b m h w 3"]
    ) -> Float[Array, "*b m h2 w2 d"]:
        """Feature maps of the encoder."""
        return self.encoder.features(images)

    def decode(self, latent: Latents, height: int, width: int) -> Layers:
        """Layers of every viewpoint and slot from latents."""
        check_image_size(self.sizes, height, width)
        return self.decoder(latent, height, width)
