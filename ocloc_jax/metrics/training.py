"""Cheap scores of a batch while training, as one pure function that can be jitted."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Real

from ocloc_jax.metrics import clustering, counting


def training_metrics(
    mask_obj: Float[Array, "*b m k h w"],
    mask_bck: Float[Array, "*b m h w"],
    recon: Float[Array, "*b m h w c"],
    image: Float[Array, "*b m h w c"],
    presence: Real[Array, "*b k"],
    segment: Real[Array, "*b m h w"],
    overlap: Real[Array, "*b m h w"],
    num_labels: int | None = None,
) -> dict[str, Float[Array, ""]]:
    """Scores a batch; each score is a mean over the batch.

    Args:
      mask_obj: Weights of the object layers.
      mask_bck: Weight of the background layer.
      recon: Reconstruction in [-1, 1].
      image: Views in [-1, 1].
      presence: Presence of the slots; from 0.5 on a slot counts.
      segment: Index of the visible object of each pixel, any index for background.
      overlap: Number of objects that cover a pixel (or `segment < background`, if
        that is all there is); object pixels are those from 1 on.
      num_labels: More than the largest index in `segment`; by default `k + 1`.

    Returns:
      `ari_all_s` and `ari_obj_s` judge every view by itself, `ari_all_m` and
      `ari_obj_m` all views of a scene as one partition; `obj` uses object pixels and
      object slots only. `mse` is that of images in [0, 1]. `count` is the share of
      scenes with the right number of objects, where the truth is the number of
      indices on object pixels. An index beyond `num_labels` turns the four ARI
      scores into nan, never into a wrong number.
    """
    num_labels = num_labels or mask_obj.shape[-3] + 1
    segment = segment.astype(jnp.int32)
    is_object = overlap >= 1
    table_all, table_obj = _tables(mask_obj, mask_bck, segment, is_object, num_labels)
    known = jnp.all((segment >= 0) & (segment < num_labels))
    scores = {
        "ari_all_s": clustering.adjusted_rand_index(table_all),
        "ari_all_m": clustering.adjusted_rand_index(table_all.sum(axis=-3)),
        "ari_obj_s": clustering.adjusted_rand_index(table_obj),
        "ari_obj_m": clustering.adjusted_rand_index(table_obj.sum(axis=-3)),
    }
    scores = {k: jnp.where(known, v.mean(), jnp.nan) for k, v in scores.items()}
    num_true = (table_obj.sum(axis=(-3, -1)) > 0).sum(axis=-1)
    num_present = (presence >= 0.5).sum(axis=-1)
    scores["mse"] = jnp.square(recon - image).mean() / 4
    scores["count"] = (num_true == num_present).astype(jnp.float32).mean()
    return scores


def _tables(
    mask_obj: Float[Array, "*b m k h w"],
    mask_bck: Float[Array, "*b m h w"],
    segment: Int[Array, "*b m h w"],
    is_object: Bool[Array, "*b m h w"],
    num_labels: int,
) -> tuple[Int[Array, "*b m i layers"], Int[Array, "*b m i k"]]:
    """Contingency tables of every view, exact in int32."""
    num_slots = mask_obj.shape[-3]
    slot = jnp.argmax(mask_obj, axis=-3)
    # The background is the last layer: it wins only if larger than every object.
    layer = jnp.where(mask_bck > mask_obj.max(axis=-3), num_slots, slot)
    slot = jnp.where(is_object, slot, num_slots)
    flat = (*segment.shape[:-2], -1)
    segment, layer, slot = (x.reshape(flat) for x in (segment, layer, slot))
    return (
        counting.label_table(segment, layer, (num_labels, num_slots + 1)),
        counting.label_table(segment, slot, (num_labels, num_slots)),
    )
