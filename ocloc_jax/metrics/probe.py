"""A linear probe: how well viewpoint latents tell where the camera stood."""

import numpy as np
from jaxtyping import Float, Float64

TARGETS = ("azimuth_sin", "azimuth_cos", "elevation", "distance")


def camera_targets(
    camera: Float[np.ndarray, "*b 3"],
) -> Float64[np.ndarray, "*b 4"]:
    """Azimuth as sine and cosine (it has no jump there), elevation, distance."""
    azimuth, elevation, distance = np.moveaxis(camera.astype(np.float64), -1, 0)
    return np.stack([np.sin(azimuth), np.cos(azimuth), elevation, distance], axis=-1)


def ridge(
    inputs: Float[np.ndarray, "n d"], targets: Float[np.ndarray, "n t"], penalty: float
) -> tuple[Float64[np.ndarray, "d t"], Float64[np.ndarray, " t"]]:
    """Least squares with an unpenalised offset and a penalty on standardised inputs."""
    mean, target_mean = inputs.mean(axis=0), targets.mean(axis=0)
    scale = inputs.std(axis=0)
    scale = np.where(scale > 0, scale, 1)  # a constant input gets weight 0
    left = (inputs - mean) / scale
    # As extra rows, so that the condition number is not squared.
    rows = np.concatenate([left, np.sqrt(penalty * len(left)) * np.eye(len(scale))])
    right = np.concatenate(
        [targets - target_mean, np.zeros((len(scale), len(target_mean)))]
    )
    weights = np.linalg.lstsq(rows, right)[0] / scale[:, None]
    return weights, target_mean - mean @ weights


def camera_probe(
    latents: Float[np.ndarray, "s v d"],
    camera: Float[np.ndarray, "s v 3"],
    held_out: float = 0.25,
    penalty: float = 1e-3,
    seed: int = 0,
) -> dict[str, float]:
    """Fits the probe on some scenes and judges it on the others.

    The viewpoint latents of a model that was never told a camera pose need not share
    one frame between scenes: a low score for azimuth beside a high one for elevation
    and distance means that each scene has its own zero direction.

    Args:
      latents: Viewpoint latents.
      camera: True azimuth and elevation in radians, and distance.
      held_out: Share of the scenes that only judge.
      penalty: Weight of the squared coefficients, relative to the mean squared error.
      seed: Chooses the scenes.

    Returns:
      R^2 on held-out scenes for each of `TARGETS` (1 is perfect, 0 the mean, nan if
      the truth does not vary), and `azimuth_error`, the mean absolute angle in radians
      (pi / 2 is chance).
    """
    num_scenes = len(latents)
    num_test = round(held_out * num_scenes)
    if not 1 <= num_test < num_scenes:
        raise ValueError(
            f"{held_out} of {num_scenes} scenes leaves {num_test} to judge on: give "
            "more scenes, or a share that leaves some on both sides."
        )
    order = np.random.default_rng(seed).permutation(num_scenes)
    test, train = order[:num_test], order[num_test:]
    targets = camera_targets(camera)
    weights, offset = ridge(
        latents[train].reshape(-1, latents.shape[-1]).astype(np.float64),
        targets[train].reshape(-1, len(TARGETS)),
        penalty,
    )
    true = targets[test].reshape(-1, len(TARGETS))
    found = latents[test].reshape(-1, latents.shape[-1]) @ weights + offset
    scores = dict(zip(TARGETS, _determination(true, found).tolist(), strict=True))
    difference = np.arctan2(*found[:, :2].T) - np.arctan2(*true[:, :2].T)
    angle = np.abs(np.angle(np.exp(1j * difference)))
    return {**scores, "azimuth_error": float(angle.mean())}


def _determination(
    true: Float64[np.ndarray, "n t"], found: Float64[np.ndarray, "n t"]
) -> Float64[np.ndarray, " t"]:
    error = np.square(true - found).sum(axis=0)
    spread = np.square(true - true.mean(axis=0)).sum(axis=0)
    constant = spread <= 1e-12 * len(true)
    return np.where(constant, np.nan, 1 - error / np.where(constant, 1, spread))
