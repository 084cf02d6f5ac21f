"""Writes tests/data/reference.tsv: figures as numpy and scipy compute them.

Run from this folder, with numpy 2.x and scipy 1.17:
    python reference.py > data/reference.tsv

Each line is a quantity, an argument of it (or `-`), the figure, and the values
it is taken of (or `-`).
"""

import itertools
import random

import numpy as np
from scipy import stats


def samples():
    rng = random.Random(11)
    yield "two", [10.0, -4.0]
    yield "ties", [2.0, 2.0, 2.0, 5.0, 5.0, 7.0]
    yield "lognormal", [rng.lognormvariate(0.0, 0.5) for _ in range(37)]
    yield "takes_ns", [float(rng.randrange(900_000, 1_400_000)) for _ in range(40)]
    yield "drift", [100.0 + 0.05 * i + rng.gauss(0.0, 1.0) for i in range(50)]


def line(quantity, argument, figure, values):
    listed = " ".join(repr(v) for v in values) or "-"
    print(f"{quantity}\t{argument}\t{float(figure)!r}\t{listed}")


def hodges_lehmann(values):
    return np.median([(a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2)])


def mann_kendall(values):
    """The normal score of Kendall's tau against time, continuity corrected, ties in the values corrected."""
    pairs = itertools.combinations(values, 2)
    score = sum(np.sign(later - early) for early, later in pairs)
    n = len(values)
    ties = np.unique(values, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    return (score - np.sign(score)) / np.sqrt(variance)


def bootstrap(values, level):
    """scipy's percentile interval of the median, stretched about it by sqrt(n / (n - 1)) * t / z within the values."""
    found = stats.bootstrap(
        (values,),
        np.median,
        n_resamples=100_000,
        batch=1000,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(3),
    ).confidence_interval
    n, tail = len(values), 0.5 + level / 2
    stretch = np.sqrt(n / (n - 1)) * stats.t.ppf(tail, n - 1) / stats.norm.ppf(tail)
    ends = np.median(values) + stretch * (np.array(found) - np.median(values))
    return np.clip(ends, min(values), max(values))


def shift_interval(a, b, level):
    """The shifts of b over a that scipy's exact rank sum test does not reject, found between neighbouring differences."""
    differences = np.sort(np.subtract.outer(b, a).ravel())
    between = (differences[1:] + differences[:-1]) / 2
    p_values = [stats.mannwhitneyu(np.array(b) - d, a, method="exact").pvalue for d in between]
    kept = [at for at, p in enumerate(p_values) if p > 1 - level]
    return differences[kept[0]], differences[kept[-1] + 1], np.median(differences)


def sides():
    rng = random.Random(12)
    for n, m in [(4, 4), (5, 5), (5, 9), (10, 10), (13, 7)]:
        yield [rng.gauss(0.0, 1.0) for _ in range(n)], [rng.gauss(0.5, 2.0) for _ in range(m)]


print("quantity\targument\tfigure\tvalues")
for name, values in samples():
    line("mean", "-", np.mean(values), values)
    line("std", "-", np.std(values, ddof=1), values)
    line("variation", "-", stats.variation(values, ddof=1), values)
    line("median", "-", np.median(values), values)
    line("mad", "-", stats.median_abs_deviation(values), values)
    line("mad_to_std", "-", stats.median_abs_deviation(values, scale="normal"), values)
    line("hodges_lehmann", "-", hodges_lehmann(values), values)
    line("theil_sen", "-", stats.theilslopes(values).slope, values)
    line("mann_kendall", "-", mann_kendall(values), values)
for q, (name, values) in itertools.product([0.05, 0.95], samples()):
    if len(values) >= 20:
        line("tail", q, np.quantile(values, q), values)
for level, (name, values) in itertools.product([0.8, 0.95], samples()):
    if len(values) >= 20:
        low, high = bootstrap(values, level)
        line("bootstrap_low", level, low, values)
        line("bootstrap_high", level, high, values)
for level, (a, b) in itertools.product([0.9, 0.95], sides()):
    low, high, middle = shift_interval(a, b, level)
    line("shift_low", f"{level} {len(a)}", low, a + b)
    line("shift_high", f"{level} {len(a)}", high, a + b)
    line("shift", f"{level} {len(a)}", middle, a + b)
for level, degrees in itertools.product([0.5, 0.9, 0.95, 0.99], [1, 2, 3, 4, 8, 15, 100, 200, 201, 5000]):
    line("t_quantile", f"{level} {degrees}", stats.t.ppf(0.5 + level / 2, degrees), [])
for level in [0.5, 0.9, 0.95, 0.99]:
    line("normal_quantile", level, stats.norm.ppf(0.5 + level / 2), [])
