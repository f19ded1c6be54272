"""Measurements that are kept one by one, so that a benchmark that was stopped goes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Parts:
    """A file of JSON lines, a measurement each; without a path nothing is kept.

    A line that a stopped process left unfinished is cut off. What was kept is never measured again: give another path
    where the code has changed.

    Args:
        path: of the file, which is made with its folder; None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._kept: list[dict[str, Any]] = []
        if path is not None and path.exists():
            whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
            path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
            self._kept = [json.loads(line) for line in whole.splitlines()]

    def measured(self, key: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the measurement that has these entries: one that was kept, or else a new one, which is kept.

        Args:
            key: what tells it from all others of the file, as JSON has it.
            measure: returns its other entries.
        """
        for each in self._kept:
            if key.items() <= each.items():
                return each
        found = key | measure()
        self._kept.append(found)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
        return found
