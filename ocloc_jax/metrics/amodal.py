"""Matching of slots to objects, and scores of complete shapes, counts and order."""

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64


def match(overlap: Float64[np.ndarray, "n k"]) -> Int64[np.ndarray, " n"]:
    """The slot of each object: one-to-one, with the largest total overlap.

    Objects that are never visible take part with zero overlap and get a slot that
    is left over; ties go to the first solution of `linear_sum_assignment`.
    """
    num_objects, num_slots = overlap.shape
    if num_slots < num_objects:
        raise ValueError(
            f"{num_slots} object slots cannot be matched to {num_objects} objects: "
            "predict with at least as many slots as `masks` has objects."
        )
    from scipy import optimize  # half a second, which training can do without

    _, slots = optimize.linear_sum_assignment(overlap, maximize=True)
    return slots.astype(np.int64)


def shape_scores(
    intersection: Float64[np.ndarray, "*b n"],
    true_area: Float64[np.ndarray, "*b n"],
    predicted_area: Float64[np.ndarray, "*b n"],
) -> tuple[Float64[np.ndarray, "*b n"], Float64[np.ndarray, "*b n"]]:
    """IoU and F1 of each object on soft shapes; nan where the object does not exist.

    Uses `max(a, b) = a + b - min(a, b)`, so that the intersection is enough.
    """
    exists = true_area > 0
    total = np.where(exists, true_area + predicted_area, 1)
    iou = intersection / (total - np.where(exists, intersection, 0))
    f1 = 2 * intersection / total
    return np.where(exists, iou, np.nan), np.where(exists, f1, np.nan)


def true_order(
    shared: Float64[np.ndarray, "*b n n"], owned: Float64[np.ndarray, "*b n n"]
) -> Int64[np.ndarray, "*b n n"]:
    """+1 where the first of two objects is in front, -1 behind, 0 below the diagonal.

    The object that owns more of the common pixels is in front; a tie, including a
    pair that does not overlap (and so has no weight), counts as in front.
    """
    front = np.where(owned >= owned.swapaxes(-1, -2), 1, -1)
    return np.triu(np.broadcast_to(front, shared.shape), k=1)


def predicted_order(
    order: Float[np.ndarray, "*b n"],
) -> Int64[np.ndarray, "*b n n"]:
    """The same from one number per object (larger is nearer); a tie is behind."""
    return np.triu(np.where(order[..., :, None] > order[..., None, :], 1, -1), k=1)


def order_weights(
    shared: Float64[np.ndarray, "*b n n"],
    true: Int64[np.ndarray, "*b n n"],
    predicted: Int64[np.ndarray, "*b n n"],
) -> tuple[Float64[np.ndarray, ""], Float64[np.ndarray, ""]]:
    """Overlap of the pairs in the right order, and of all pairs, over all views."""
    weight = np.triu(shared, k=1)
    right: Bool[np.ndarray, "*b n n"] = true == predicted
    return np.asarray((weight * right).sum()), np.asarray(weight.sum())
