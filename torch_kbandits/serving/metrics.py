"""What a service counts and measures, as Prometheus reads it."""

from collections.abc import Mapping
from typing import Any

from torch_kbandits.serving.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4"


def journal_of(service: Service) -> dict[str, float]:
    """Return the size of a journal, its changes, and how often and for how many seconds the disk was waited for."""
    journal = service.journal
    return {
        "bytes": journal.size,
        "changes": service.num_changes,
        "syncs": journal.num_syncs,
        "sync_seconds": journal.sync_seconds,
    }


def metrics(state: Mapping[str, Any]) -> str:
    """Return the text of what ``/health`` has, of which ``bandit`` is text already."""
    journal = state["journal"]
    lines = [
        *_one("asked_total", "counter", "Points ever asked for.", state["asked"]),
        *_one("told_total", "counter", "Rewards ever told.", state["told"]),
        *_one("pending", "gauge", "Points asked for and not yet told.", state["pending"]),
        *_one("journal_bytes", "gauge", "Bytes of the journal.", journal["bytes"]),
        *_one("journal_changes", "gauge", "Changes since the bandit was saved whole.", journal["changes"]),
        *_one("journal_syncs_total", "counter", "Waits for the disk.", journal["syncs"]),
        *_one("journal_sync_seconds_total", "counter", "Seconds of waiting for the disk.", journal["sync_seconds"]),
        *_one("uptime_seconds", "gauge", "Seconds since the start.", state["uptime"]),
        "# HELP kbandits_serving_latency_seconds Seconds to answer, of the latest 1000 of each operation.",
        "# TYPE kbandits_serving_latency_seconds summary",
    ]
    for operation, found in sorted(state["latency"].items()):
        name = "kbandits_serving_latency_seconds"
        lines += [
            f'{name}{{operation="{operation}",quantile="0.5"}} {found["p50"]!r}',
            f'{name}{{operation="{operation}",quantile="0.99"}} {found["p99"]!r}',
            f'{name}_count{{operation="{operation}"}} {found["count"]}',
        ]
    return "\n".join([*lines, state.get("bandit", "")]).rstrip("\n") + "\n"


def _one(name: str, kind: str, what: str, value: float) -> list[str]:
    name = f"kbandits_serving_{name}"
    return [f"# HELP {name} {what}", f"# TYPE {name} {kind}", f"{name} {value!r}"]
