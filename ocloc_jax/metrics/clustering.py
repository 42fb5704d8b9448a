"""Agreement of two partitions from their contingency table: ARI and exact AMI."""

import functools

import numpy as np
from jaxtyping import Array, Float, Float64, Int64, Real
from scipy import special

# exp(-40) is 4e-18: the tails that the expectation leaves out do not reach float64.
_TAIL = 40.0


def adjusted_rand_index(
    table: Real[np.ndarray | Array, "*b i j"],
) -> Float[np.ndarray | Array, "*b"]:
    """Adjusted Rand index of each contingency table, 1 for equal partitions.

    Works on NumPy and (under `jit`) on JAX tables. Every pair count is a sum of
    products of whole numbers with one sign, so float32 is right to about 1e-7 even
    where the textbook form `b_row + b_col - 2 b_row b_col / c` would cancel.
    """
    xp = table.__array_namespace__()
    table = table.astype(xp.promote_types(table.dtype, xp.float32))
    row = table.sum(axis=-1, keepdims=True)
    column = table.sum(axis=-2, keepdims=True)
    total = row.sum(axis=-2, keepdims=True)
    share = table / xp.where(total > 0, total, 1)

    def pairs(others):
        return (share * others).sum(axis=(-2, -1))

    # Ordered pairs of pixels: together in both, in the true or in the predicted
    # partition only, in neither.
    both = pairs(xp.where(table > 0, table - 1, 0))
    only_true, only_predicted = pairs(row - table), pairs(column - table)
    neither = pairs(total - row - column + table)
    gain = 2 * (both * neither - only_true * only_predicted)
    scale = (both + only_true) * (only_true + neither)
    scale = scale + (both + only_predicted) * (only_predicted + neither)
    equal = (only_true == 0) & (only_predicted == 0)
    return xp.where(equal, 1, gain / xp.where(equal, 1, scale))


def adjusted_mutual_information(
    table: Int64[np.ndarray, "*b i j"],
) -> Float64[np.ndarray, "*b"]:
    """Exact adjusted mutual information, normalised by the arithmetic mean.

    Equal to scikit-learn's `adjusted_mutual_info_score`: 1 for equal partitions
    (also when there are no pixels), 0 if exactly one of them does not split anything.
    """
    row, column = table.sum(axis=-1), table.sum(axis=-2)
    entropy_true, entropy_predicted = _entropy(row), _entropy(column)
    joint = _entropy(table.reshape(*table.shape[:-2], -1))
    information = np.maximum(entropy_true + entropy_predicted - joint, 0)
    expected = expected_mutual_information(row, column)
    scale = (entropy_true + entropy_predicted) / 2 - expected
    tiny = np.finfo(np.float64).eps
    scale = np.where(scale < 0, np.minimum(scale, -tiny), np.maximum(scale, tiny))
    num_true, num_predicted = (row > 0).sum(axis=-1), (column > 0).sum(axis=-1)
    whole = (num_true <= 1) | (num_predicted <= 1)
    num_cells = (table > 0).sum(axis=(-2, -1))
    equal = (num_cells == num_true) & (num_cells == num_predicted)
    return np.where(equal, 1.0, np.where(whole, 0.0, (information - expected) / scale))


def expected_mutual_information(
    row: Int64[np.ndarray, "*b i"], column: Int64[np.ndarray, "*b j"]
) -> Float64[np.ndarray, "*b"]:
    """Mean mutual information of two random partitions with these sizes, in nats.

    A cell of the table is hypergeometric. The sum over its values runs over the part
    of the support where the probability can be seen in float64, and wide cells take
    every few values only; both leave errors far below float64 (see `_sampled_range`),
    and make it cheap: tens of values instead of up to all pixels.
    """
    batch = row.shape[:-1]
    row, column = row.reshape(-1, row.shape[-1]), column.reshape(-1, column.shape[-1])
    total = np.broadcast_to(row.sum(axis=1)[:, None, None], (*row.shape, 1))
    cells = np.broadcast_arrays(row[:, :, None], column[:, None, :], total)
    used = (cells[0] > 0) & (cells[1] > 0)
    expected = np.zeros(used.shape)
    if used.any():
        expected[used] = _expected_cells(*(cell[used] for cell in cells))
    return expected.sum(axis=(1, 2)).reshape(batch)


def _expected_cells(
    row: Int64[np.ndarray, " c"],
    column: Int64[np.ndarray, " c"],
    total: Int64[np.ndarray, " c"],
) -> Float64[np.ndarray, " c"]:
    low, high, step = _sampled_range(row, column, total)
    lengths = (high - low) // step + 1
    starts = np.cumsum(lengths) - lengths
    log_factorial, log = _log_tables(int(total.max()))

    def spread(values):
        return np.repeat(values, lengths)

    def log_weight(count, rest, row, column):
        first = log_factorial[count] + log_factorial[rest + count]
        return -(first + log_factorial[row - count] + log_factorial[column - count])

    count = spread(low) + spread(step) * (np.arange(lengths.sum()) - spread(starts))
    sizes = (total - row - column, row, column)
    mode = (row + 1) * (column + 1) // (total + 2)
    # Relative to the mode and divided by its own sum: the density's constants cancel.
    peak = log_weight(mode, *sizes)
    weight = np.exp(log_weight(count, *map(spread, sizes)) - spread(peak))
    log_mean = np.log(row) + np.log(column) - np.log(total)
    value = weight * count * (log[count] - spread(log_mean))
    return np.add.reduceat(value, starts) / np.add.reduceat(weight, starts) / total


def _sampled_range(
    row: Int64[np.ndarray, " c"],
    column: Int64[np.ndarray, " c"],
    total: Int64[np.ndarray, " c"],
) -> tuple[Int64[np.ndarray, " c"], Int64[np.ndarray, " c"], Int64[np.ndarray, " c"]]:
    """First value, last value and step of the sum over each cell's values.

    The range comes from Bernstein's inequality, which holds for drawing without
    replacement. A hypergeometric number is a sum of independent Bernoulli numbers, so
    its characteristic function is at most exp(-variance (1 - cos t)); by Poisson's
    summation formula a step h (t = 2 pi / h) of 0.4 deviations or less changes a sum
    by less than 2e-22 of it, as long as the support does not cut the range off.
    """
    mean = row * (column / total)
    bound = mean * (1 - np.maximum(row, column) / total)
    reach = _TAIL / 3 + np.sqrt((_TAIL / 3) ** 2 + 2 * _TAIL * bound)
    least, most = np.maximum(0, row + column - total), np.minimum(row, column)
    low, high = np.floor(mean - reach), np.ceil(mean + reach)
    inside = (low > least) & (high < most)
    others = np.maximum(total - 1, 1)
    deviation = np.sqrt(mean * (1 - row / total) * (total - column) / others)
    step = np.where(inside, np.maximum(np.floor(0.4 * deviation), 1), 1)
    low, high = np.maximum(low, least), np.minimum(high, most)
    return low.astype(np.int64), high.astype(np.int64), step.astype(np.int64)


def _log_tables(
    largest: int,
) -> tuple[Float64[np.ndarray, " f"], Float64[np.ndarray, " f"]]:
    # Rounded up to a power of two, so that few tables are ever made.
    return _cached_log_tables(1 << largest.bit_length())


@functools.lru_cache(maxsize=8)
def _cached_log_tables(
    size: int,
) -> tuple[Float64[np.ndarray, " f"], Float64[np.ndarray, " f"]]:
    """`log(n!)` and `log(n)`, the latter 0 for 0, whose factor is 0 anyway."""
    numbers = np.arange(size)
    return special.gammaln(numbers + 1.0), np.log(np.maximum(numbers, 1))


def _entropy(counts: Int64[np.ndarray, "*b c"]) -> Float64[np.ndarray, "*b"]:
    total = np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    return np.asarray(special.entr(counts / total).sum(axis=-1))
