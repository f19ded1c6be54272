"""What a request may see of a bandit without changing it, and what is measured beside, as Prometheus reads it."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.plotting.section import moments
from torch_kbandits.serving.requests import plain


def _recommend(bandit: Bandit, words: Mapping[str, Any]) -> dict[str, Any]:
    found = bandit.recommend(**words)
    return {"actions": plain(found if isinstance(found, Tensor) else [found])}


def _posterior(bandit: Bandit, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return posterior means and standard deviations of the function at points, in reward units."""
    found = moments(bandit, bandit.candidates.points(words["points"], words.get("context"), max(bandit.now, 0.0)))
    return {"means": found.mean.tolist(), "deviations": found.deviation.tolist()}


def _pending(bandit: Bandit, words: Mapping[str, Any]) -> dict[str, Any]:
    points, ages = bandit.pending, plain(bandit.pending_ages)
    actions = plain(bandit.candidates.actions(points)) if len(points) else []
    return {"ids": list(bandit.pending_ids), "actions": actions, "points": points.tolist(), "ages": ages}


def _counts(bandit: Bandit) -> dict[str, Any]:
    numbers = {"asked": bandit.num_asked, "told": bandit.num_observations, "pending": len(bandit.pending_ids)}
    return {"round": bandit.round} | numbers


#: By name.
VIEWS: dict[str, Callable[[Bandit, Mapping[str, Any]], dict[str, Any]]] = {
    "recommend": _recommend,
    "posterior": _posterior,
    "pending": _pending,
    "health": lambda bandit, words: _counts(bandit) | {"bandit": plain(bandit.health().as_dict())},
    "metrics": lambda bandit, words: _counts(bandit) | {"bandit": bandit.health().to_prometheus()},
}

#: By metric: where the number is in what ``/health`` has, and what it means.
_METRICS = {
    "asked_total": ("asked", "Points ever asked for."),
    "told_total": ("told", "Rewards ever told."),
    "pending": ("pending", "Points asked for and not yet told."),
    "journal_bytes": ("journal.bytes", "Bytes of the journal."),
    "journal_changes": ("journal.changes", "Changes since the bandit was saved whole."),
    "journal_syncs_total": ("journal.syncs", "Waits for the disk."),
    "journal_sync_seconds_total": ("journal.sync_seconds", "Seconds of waiting for the disk."),
    "uptime_seconds": ("uptime", "Seconds since the start."),
}
_LATENCY = "kbandits_serving_latency_seconds"


def prometheus(state: Mapping[str, Any]) -> str:
    """Return the text, format 0.0.4, of what ``/health`` has, of which ``bandit`` is text already."""
    lines = []
    for metric, (place, meaning) in _METRICS.items():
        room, _, value = place.rpartition(".")
        name, kind = f"kbandits_serving_{metric}", "counter" if metric.endswith("_total") else "gauge"
        number = (state[room] if room else state)[value]
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", f"{name} {number!r}"]
    lines += [f"# HELP {_LATENCY} Seconds to answer, of the latest 1000 of each operation."]
    lines += [f"# TYPE {_LATENCY} summary"]
    for operation, found in sorted(state["latency"].items()):
        label = f'operation="{operation}"'
        lines += [f'{_LATENCY}{{{label},quantile="{share / 100:g}"}} {found[f"p{share}"]!r}' for share in (50, 99)]
        lines += [f"{_LATENCY}_count{{{label}}} {found['count']}"]
    return "\n".join([*lines, state["bandit"]])
