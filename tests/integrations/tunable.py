"""An estimator whose score is known: a smooth function of its parameters, noise that a seed draws, and failures."""

import zlib

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


def quality(log_rate, depth, kind):
    """At most 1, at log_rate = -2.5, depth = 6 and kind "b"."""
    return 1.0 - 0.25 * (log_rate + 2.5) ** 2 - 0.02 * (depth - 6) ** 2 - 0.3 * (kind != "b")


class Tunable(ClassifierMixin, BaseEstimator):
    """Predicts a constant; ``score`` is what is tuned. It fails where ``depth`` is above ``limit``."""

    def __init__(self, rate=0.1, depth=3, kind="a", noise=0.0, limit=np.inf, seed=0):
        self.rate, self.depth, self.kind = rate, depth, kind
        self.noise, self.limit, self.seed = noise, limit, seed

    def fit(self, X, y, sample_weight=None):
        if self.depth > self.limit:
            raise ValueError("too deep")
        self.classes_ = np.unique(y)
        self.weight_ = None if sample_weight is None else float(np.sum(sample_weight))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def score(self, X, y, sample_weight=None):
        address = repr((float(self.rate), int(self.depth), self.kind, self.seed, np.asarray(X).ravel().tolist()))
        luck = np.random.default_rng(zlib.crc32(address.encode())).standard_normal()
        return quality(np.log10(self.rate), self.depth, self.kind) + self.noise * luck
