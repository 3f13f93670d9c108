"""Ratios of medians and how sure they are.

A row's samples are pairs (plait's step time, the baseline's), taken in turn. Its ratio is the median of the baseline's over the median of plait's. The
bounds are the 2.5 % and 97.5 % points of that ratio over bootstrap samples: as many pairs drawn with replacement, pairs staying together, so that a
slow minute counts on both sides. The seed is fixed: the same pairs give the same bounds."""
import math
import random
import statistics

SAMPLES = 4000


def ratio(pairs):
    return statistics.median(theirs for _, theirs in pairs) / statistics.median(ours for ours, _ in pairs)


def _resampled(pairs, count, generator):
    return [ratio(generator.choices(pairs, k=len(pairs))) for _ in range(count)]


def _ends(values):
    values = sorted(values)
    return values[int(0.025 * len(values))], values[min(len(values) - 1, math.ceil(0.975 * len(values)) - 1)]


def ratio_bounds(pairs, samples=SAMPLES):
    """(ratio, lower, upper)"""
    return (ratio(pairs), *_ends(_resampled(pairs, samples, random.Random(1))))


def geometric_mean(values):
    return math.exp(statistics.mean(math.log(v) for v in values))


def mean_bounds(rows, samples=SAMPLES):
    """Of the geometric mean over rows, each a list of pairs."""
    generator = random.Random(1)
    columns = [_resampled(pairs, samples, generator) for pairs in rows]
    means = [geometric_mean(values) for values in zip(*columns)]
    return (geometric_mean([ratio(pairs) for pairs in rows]), *_ends(means))


def verdict(upper, bar):
    """A bar is missed only when even the upper bound lies below it."""
    return "pass" if upper >= bar else "MISSED"
