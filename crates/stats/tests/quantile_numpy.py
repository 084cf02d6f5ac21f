"""Writes tests/data/quantile_numpy.tsv: quantiles as numpy computes them.

Run from this folder, with numpy 2.x:
    python quantile_numpy.py > data/quantile_numpy.tsv
"""

import random

import numpy as np

FRACTIONS = [0.0, 0.01, 0.05, 0.25, 1 / 3, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0]


def cases():
    rng = random.Random(7)
    yield "one", [3.25]
    yield "two", [10.0, -4.0]
    yield "ties", [2.0, 2.0, 2.0, 5.0, 5.0]
    yield "first_ten", [float(i) for i in range(10)]
    yield "lognormal", [rng.lognormvariate(0.0, 1.5) for _ in range(37)]
    yield "laps_ns", [float(rng.randrange(900_000, 1_400_000)) for _ in range(100)]
    yield "wide", [rng.choice([-1, 1]) * 10.0 ** rng.uniform(-12, 12) for _ in range(25)]


print("case\tq\tquantile\tvalues")
for name, values in cases():
    for q in FRACTIONS:
        listed = " ".join(repr(v) for v in values)
        print(f"{name}\t{q!r}\t{float(np.quantile(values, q))!r}\t{listed}")
