"""What a request may see of a bandit without changing it."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.plotting.section import moments
from torch_kbandits.serving.requests import Reader, plain


def recommend(bandit: Bandit, reader: Reader, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action to use if the run ended now."""
    found = bandit.recommend(**reader.words("recommend", request))
    return {"actions": plain(found if isinstance(found, Tensor) else [found])}


def belief(bandit: Bandit, reader: Reader, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return posterior means and standard deviations of the function at points, in reward units."""
    words = reader.words("belief", request)
    X = bandit.candidates.points(words["points"], words.get("context"), max(bandit.now, 0.0))
    found = moments(bandit, X)
    return {"means": found.mean.tolist(), "deviations": found.deviation.tolist()}


def pending(bandit: Bandit, reader: Reader, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the points asked for and not told: their ids, as actions, as the kernel sees them, and their ages."""
    points, ages = bandit.pending, plain(bandit.pending_ages)
    actions = plain(bandit.candidates.actions(points)) if len(points) else []
    return {"ids": list(bandit.pending_ids), "actions": actions, "points": points.tolist(), "ages": ages}


def health(bandit: Bandit, reader: Reader, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts, and what the bandit says of itself."""
    return _counts(bandit) | {"bandit": plain(bandit.health().as_dict())}


def metrics(bandit: Bandit, reader: Reader, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts, and what the bandit says of itself to Prometheus."""
    return _counts(bandit) | {"bandit": bandit.health().to_prometheus()}


#: By name.
VIEWS: dict[str, Callable[[Bandit, Reader, Mapping[str, Any]], dict[str, Any]]] = {
    each.__name__: each for each in (recommend, belief, pending, health, metrics)
}


def _counts(bandit: Bandit) -> dict[str, Any]:
    return {
        "round": bandit.round,
        "asked": bandit.num_asked,
        "told": bandit.num_observations,
        "pending": len(bandit.pending_ids),
    }
