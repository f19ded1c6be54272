"""Daily particulate matter of Germany as files for ``sensor-replay``: 28 stations, the year 2005 and the two after it.

    python -m benchmarks.pm10 air.rda runs/pm10

The table is ``air`` of the R package spacetime (GPL 2 or later): means of PM10 in µg/m³ of 70 rural background stations
from 1998 to 2009, of the European air quality data base. ``rdata`` reads it: pip install rdata. The stations are the 28
that miss the fewest days from 2005 to 2007. The first year is to choose and to learn on, the other two to judge on.
"""

import argparse
from collections.abc import Iterator
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ozone2 import learn, references, settings, write
from benchmarks.replay_data import filled

_STATIONS, _LEARNED, _YEARS = 28, 365, (2005, 2007)


def main() -> None:
    """Write the files, and print what was learned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="air.rda")
    parser.add_argument("folder", type=Path, help="where the files go")
    words = parser.parse_args()
    names, places, days, values = _read(words.table)
    words.folder.mkdir(parents=True, exist_ok=True)
    learned = learn(places, values[:_LEARNED])
    write(words.folder / "places.csv", ["station", "east", "north"], names, places)
    for name, part in (("first.csv", slice(_LEARNED)), ("pm10.csv", slice(_LEARNED, None))):
        write(words.folder / name, ["day", *names], days[part], (values[part] - learned.center).round(4))
    print(settings(places, values[:_LEARNED], learned))
    print(f"# average regret in the two years: {references(values, learned.regularization, _LEARNED)}")


def _read(path: Path) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    """Return the names of the stations, where they are (28, 2), and the days with their readings (T, 28)."""
    table = dict(_entries(import_module("rdata").parser.parse_file(path).object))
    about, coordinates = dict(_entries(table["air"].attributes)), dict(_entries(table["stations"].attributes))["coords"]
    readings = np.asarray(table["air"].value).reshape(about["dim"].value, order="F").T
    places = np.asarray(coordinates.value).reshape(2, -1).T
    names = [each.value.decode() for each in about["dimnames"].value[0].value]
    days = [date(1970, 1, 1) + timedelta(float(each)) for each in table["dates"].value]
    played = np.array([_YEARS[0] <= day.year <= _YEARS[1] for day in days])
    rows = np.sort(np.argsort(np.isnan(readings[played]).sum(0), kind="stable")[:_STATIONS])
    kept = [str(day) for day, is_played in zip(days, played, strict=True) if is_played]
    return [names[row] for row in rows], places[rows], kept, filled(readings[played][:, rows])


def _entries(pairs: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and the values of a list of R as ``rdata`` parses it: its conversion fails on this table."""
    while pairs.info.type.name == "LIST":
        tag = pairs.tag.referenced_object or pairs.tag
        yield tag.value.value.decode(), pairs.value[0]
        pairs = pairs.value[1]


if __name__ == "__main__":
    main()
