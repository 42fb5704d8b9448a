"""Speed and memory of the metrics beside a straightforward computation.

python -m benchmarks.metrics

Makes 100 scenes x 8 views x 128x128 with 10 objects and 11 slots in 8 bits, scores
them with `ocloc_jax.metrics` and with scikit-learn plus NumPy (scene by scene, object
by object), compares every number and prints both times and the peak memory. The clock
says what a user waits; the processor time does not depend on what else is running.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator

import numpy as np
from scipy import optimize
from sklearn import metrics as sklearn_metrics

from ocloc_jax import metrics

Scene = dict[str, np.ndarray]


def make_scenes(num_scenes: int, num_views: int, size: int, num_objects: int) -> Scene:
    """Random discs that hide each other, and a noisy, permuted copy as prediction."""
    rng = np.random.default_rng(0)
    lead = (num_scenes, num_views)
    masks = np.zeros((*lead, num_objects + 1, size, size), np.uint8)
    segment = np.full((*lead, size, size), num_objects, np.uint8)
    masks[:, :, -1] = 255
    rows, columns = np.mgrid[:size, :size]
    for index in np.ndindex(*lead):
        for number in range(num_objects):
            centre, radius = rng.uniform(0, size, 2), rng.uniform(0.06, 0.18) * size
            distance = np.hypot(rows - centre[0], columns - centre[1])
            masks[*index, number] = np.uint8(255) * (distance < radius)
            segment[*index][distance < radius] = number
    overlap = (masks[:, :, :-1] > 0).sum(axis=2, dtype=np.uint8)
    scenes = {"segment": segment, "overlap": overlap, "masks": masks}
    return scenes | _predict(rng, segment, masks)


def _predict(rng: np.random.Generator, segment: Scene, masks: Scene) -> Scene:
    num_scenes, num_views, num_layers, *size = masks.shape
    num_slots = num_layers
    mask = np.empty((num_scenes, num_views, num_slots + 1, *size), np.uint8)
    shape = np.empty((num_scenes, num_views, num_slots, *size), np.uint8)
    for index in range(num_scenes):
        true = np.concatenate([masks[index, :, :-1], masks[index, :, :1] * 0], axis=1)
        slots = rng.permutation(num_slots)
        layers = np.arange(num_slots + 1)
        layers[:num_slots] = slots
        layers[num_slots] = num_layers - 1  # background
        layers[:num_slots][slots >= num_layers - 1] = 255  # the spare slot
        hit = segment[index][:, None] == layers[None, :, None, None]
        wrong = rng.integers(0, 90, mask.shape[1:], dtype=np.uint8)
        mask[index] = np.where(hit, 60, 0).astype(np.uint8) + wrong
        shape[index] = true[:, slots] // 2 + wrong[:, :num_slots]
    presence = rng.random((num_scenes, num_slots), np.float32)
    order = rng.standard_normal((num_scenes, num_views, num_slots), np.float32)
    return {"mask": mask, "shape": shape, "presence": presence, "order": order}


def straightforward(scenes: Scene) -> dict[str, float]:
    """The same pooled scores, written the obvious way."""
    results = [_score(scene) for scene in _each(scenes)]
    pooled = {
        name: float(np.mean([result[name] for result in results]))
        for name in ("ari_a", "ami_a", "ari_o", "ami_o", "oca")
    }
    for name in ("iou", "f1"):
        pooled[name] = float(np.mean([x for result in results for x in result[name]]))
    right, weight = np.sum([result["order"] for result in results], axis=0)
    return pooled | {"ooa": float(right / weight)}


def _each(scenes: Scene) -> Iterator[Scene]:
    for index in range(len(scenes["segment"])):
        yield {key: value[index] for key, value in scenes.items()}


def _score(scene: Scene) -> dict:
    segment, mask, masks = scene["segment"], scene["mask"] / 255, scene["masks"] / 255
    shape, num_objects = scene["shape"] / 255, masks.shape[1] - 1
    layer, slot = mask.argmax(axis=1), mask[:, :-1].argmax(axis=1)
    true = segment.ravel()
    chosen = scene["overlap"] >= 1
    result = {
        "ari_a": sklearn_metrics.adjusted_rand_score(true, layer.ravel()),
        "ami_a": sklearn_metrics.adjusted_mutual_info_score(true, layer.ravel()),
        "ari_o": sklearn_metrics.adjusted_rand_score(segment[chosen], slot[chosen]),
        "ami_o": sklearn_metrics.adjusted_mutual_info_score(
            segment[chosen], slot[chosen]
        ),
    }
    cost = np.zeros((num_objects, mask.shape[1] - 1))
    for i, k in np.ndindex(*cost.shape):
        cost[i, k] = -((segment == i) * mask[:, k]).sum()
    _, matching = optimize.linear_sum_assignment(cost)
    result["iou"], result["f1"] = _shapes(masks, shape, matching)
    seen = len(np.unique(true[true < num_objects]))
    result["oca"] = float((scene["presence"] >= 0.5).sum() == seen)
    result["order"] = _order(segment, masks, scene["order"][:, matching])
    return result


def _shapes(masks: np.ndarray, shape: np.ndarray, matching: np.ndarray) -> tuple:
    iou, f1 = [], []
    for i, k in enumerate(matching):
        if masks[:, i].any():
            inter = np.minimum(masks[:, i], shape[:, k]).sum()
            union = np.maximum(masks[:, i], shape[:, k]).sum()
            iou.append(inter / union)
            f1.append(2 * inter / (inter + union))
    return iou, f1


def _order(segment: np.ndarray, masks: np.ndarray, order: np.ndarray) -> tuple:
    right = total = 0.0
    for view in range(len(segment)):
        for i, j in zip(*np.triu_indices(masks.shape[1] - 1, k=1), strict=True):
            both = masks[view, i] * masks[view, j]
            in_front = (both * (segment[view] == i)).sum() >= (
                both * (segment[view] == j)
            ).sum()
            predicted = order[view, i] > order[view, j]
            right += both.sum() * (in_front == predicted)
            total += both.sum()
    return right, total


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _timed(run: Callable[[], dict[str, float]]) -> tuple[dict[str, float], np.ndarray]:
    start = np.array([time.perf_counter(), time.process_time()])
    result = run()
    return result, np.array([time.perf_counter(), time.process_time()]) - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_scenes", type=int, default=100)
    parser.add_argument("--num_views", type=int, default=8)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--num_objects", type=int, default=10)
    parser.add_argument("--block", type=int, default=10)
    args = parser.parse_args()
    scenes = make_scenes(args.num_scenes, args.num_views, args.size, args.num_objects)
    print(f"scenes made, peak memory {_peak_megabytes():.0f} MB")
    start = time.perf_counter()
    metrics.score_scene(next(_each(scenes)))
    print(f"compile and first scene: {time.perf_counter() - start:.2f} s")
    fast = slow = np.zeros(2)
    error = 0.0
    # In turns, so that whatever else the machine does slows both down alike.
    for start in range(0, args.num_scenes, args.block):
        some = {key: value[start : start + args.block] for key, value in scenes.items()}
        ours, seconds = _timed(lambda some=some: metrics.evaluate(**some)["pooled"])
        fast = fast + seconds
        theirs, seconds = _timed(lambda some=some: straightforward(some))
        slow = slow + seconds
        error = max(error, *(abs(ours[name] - theirs[name]) for name in theirs))
    for name, (wall, cpu) in (("ocloc_jax.metrics", fast), ("straightforward", slow)):
        wall, cpu = 1e3 * wall / args.num_scenes, 1e3 * cpu / args.num_scenes
        print(f"{name}: {wall:.1f} ms per scene, {cpu:.1f} ms of processor")
    print("ratio: {:.1f} by the clock, {:.1f} of processor".format(*slow / fast))
    print(f"peak memory, all scenes and both programs: {_peak_megabytes():.0f} MB")
    print(f"largest difference of a score: {error:.1e}")


if __name__ == "__main__":
    main()
