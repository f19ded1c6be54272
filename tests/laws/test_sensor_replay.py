"""A row of a file is a round: readings, times, locations and gaps, and what is said of a file that does not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import examples

from torch_kbandits import InputError
from torch_kbandits.environments import SensorReplay, build, sensor_replay, sensors


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def rows(count: int = 10) -> tuple[np.ndarray, list[str]]:
    readings = np.random.default_rng(1).normal(loc=[20.0, 21.0, 19.0], scale=[1.0, 0.5, 2.0], size=(count, 3))
    return readings, [",".join(repr(float(value)) for value in row) for row in readings]


def test_a_row_is_a_round_readings_are_rewards_and_the_first_are_learned_from(tmp_path):
    readings, lines = rows()
    file = write(tmp_path / "r.csv", "a,b,c", *lines)
    env = sensor_replay(file, train_fraction=0, seed=0)
    assert isinstance(env, SensorReplay)
    assert env.rounds == 10
    assert env.arms.tolist() == [[0.0], [1.0], [2.0]]
    assert (env.kernel, env.regularization, env.center, env.noise_scale) == (None, None, 0.0, 0.0)
    assert env.variation_budget(5) is None
    for t in range(10):
        assert env.pull(env.arms[[2, 0]], t).tolist() == readings[t, [2, 0]].tolist()
        assert env.mean(env.arms, t).tolist() == readings[t].tolist()
        assert env.regret(env.arms, t).numpy() == pytest.approx(readings[t].max() - readings[t], abs=1e-14)
    env = sensor_replay(file, train_fraction=0.45, noise_fraction=0.1, seed=0)
    train, covariance = readings[:4], np.cov(readings[:4].T)
    assert env.kernel(env.arms).to_dense().numpy() == pytest.approx(covariance)
    assert env.center == pytest.approx(train.mean())
    assert env.regularization == pytest.approx(0.1 * np.diag(covariance).mean())
    assert env.noise_scale == pytest.approx(np.sqrt(env.regularization))
    assert env.rounds == 6
    assert [env.pull(env.arms, t).tolist() for t in range(6)] == readings[4:].tolist()  # exact, whatever noise_scale is


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (["time,a,b,c"], {}),
        ([",a,b,c"], {}),
        (["2024,a,b,c"], {}),
        ([], {}),
        (["time,a,b,c"], {"header": True, "times": True}),
        ([], {"header": False, "times": True}),
    ],
)
def test_times_stand_aside(tmp_path, head, words):
    _, lines = rows()
    plain = write(tmp_path / "plain.csv", "a,b,c", *lines)
    timed = [f"2024-01-{number + 1:02d} 06:00,{line}" for number, line in enumerate(lines)]
    stamped = write(tmp_path / "stamped.csv", *head, *timed)
    for maker in (sensor_replay, sensors):
        env, twin = (maker(file, seed=0, **extra) for file, extra in ((plain, {}), (stamped, words)))
        assert env.center == twin.center
        assert torch.equal(env.arms, twin.arms)
        assert torch.equal(env.kernel.covariance, twin.kernel.covariance)
        assert torch.equal(env.pull(env.arms, 3), twin.pull(twin.arms, 3))
    numbered = write(tmp_path / "numbered.csv", "time,a,b,c", *(f"{i},{line}" for i, line in enumerate(lines)))
    assert len(sensor_replay(numbered, seed=0).arms) == 4  # unless they are named
    env = sensor_replay(numbered, times=True, train_fraction=0.0, seed=0)
    assert env.pull(env.arms, 7).tolist() == rows()[0][7].tolist()


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=3, max_size=3), min_size=1, max_size=12))
@examples(60)
def test_gaps_are_filled_with_the_reading_before(tmp_path_factory, table):
    """Against a loop over sensors that keeps the last reading of each."""
    table, blanks = [[1, 2, 3], *table], ["", "NaN", " na "]
    lines = [",".join(blanks[i] if v is None else str(v) for i, v in enumerate(row)) for row in table]
    file = write(tmp_path_factory.mktemp("gaps") / "gaps.csv", "a,b,c", *lines)
    filled, dropped = (sensor_replay(file, gaps=gaps, train_fraction=0.0, seed=0) for gaps in ("previous", "drop"))
    for sensor in range(3):
        last = None
        for t, row in enumerate(table):
            last = last if row[sensor] is None else row[sensor]
            assert float(filled.readings[t, sensor]) == last
    assert dropped.readings.tolist() == [row for row in table if None not in row]


def test_arms_are_where_the_sensors_are(tmp_path):
    readings, lines = rows()
    file = write(tmp_path / "r.csv", "a,b,c", *lines)
    expected = [[0.0, 1.5], [2.0, -1.0], [3.0, 0.5]]
    for head in (["sensor,x,y"], []):
        places = write(tmp_path / "l.csv", *head, "c,3,0.5", "a,0,1.5", "b,2,-1")
        env = sensor_replay(file, locations=places, seed=0)
        assert env.arms.tolist() == expected
        assert env.kernel is None
        assert env.center == pytest.approx(readings[:2].mean())
        assert env.pull(env.arms[[1]], 0).tolist() == [readings[2, 1]]


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (["kitchen,0", "hall,1"], r"lacks the sensor\(s\) office"),
        (["kitchen,0", "hal,1"], "line 2: 'hal' is no sensor of which there are readings; did you mean 'hall'"),
        (["kitchen,0", "kitchen,1"], "line 2: the sensor 'kitchen' is there twice"),
        (["name,x,y", "kitchen,0,1", "hall,1,"], r"line 3, column 3 \(y\): the coordinate is missing"),
        (["kitchen,0,1", "hall,1,north"], r"line 2, column 3 \(3\): 'north' is not a finite number"),
        (["kitchen", "hall"], "has one column"),
        (["kitchen,0", "hall,1", "office,1"], "Arms 1 and 2 are the same point"),
        ([""], "is empty"),
    ],
)
def test_bad_locations_are_named(tmp_path, places, message):
    file = write(tmp_path / "r.csv", "kitchen,hall,office", *rows()[1])
    with pytest.raises(InputError, match=message):
        sensor_replay(file, locations=write(tmp_path / "l.csv", *places), seed=0)


LINES = ["t0,1,2", "t1,3,5", "t2,4,4", "t3,5,1"]


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ([*LINES, "t4,,3"], {}, r"line 6, column 2 \(a\): the reading is missing.*gaps='previous'"),
        ([*LINES, "t4,3,NaN"], {}, r"line 6, column 3 \(b\): the reading is missing.*gaps='drop'"),
        (["t0,,2", *LINES], {"gaps": "previous"}, r"line 2, column 2 \(a\).*if there is one"),
        ([*LINES, "t4,3,x"], {}, r"line 6, column 3 \(b\): 'x' is not a finite number"),
        ([*LINES, "t4,3,inf"], {}, r"line 6, column 3 \(b\): 'inf' is not a finite number"),
        ([*LINES, "t4,3"], {}, "line 6: expected 3 cells, got 2"),
        ([], {}, r"0 usable row\(s\)"),
        (LINES, {"train_fraction": 0.26}, "1 are to learn from and 3 to replay"),
        (LINES, {"train_fraction": 1.0}, "train_fraction must be at least 0 and below 1"),
        (["t,1,2", "t,1,3", "t,2,2"], {"train_fraction": 0.7}, r"sensor\(s\) a are constant over"),
        (LINES, {"gaps": "fill"}, "Known: drop, previous, refuse"),
        (LINES, {"times": "yes"}, "times must be True or False"),
        (LINES, {"times": False}, r"line 2, column 1 \(time\): 't0' is not a finite number"),
        ([], {"train_fraction": 0.0}, r"readings must be \(T, A\) with T >= 1"),
    ],
)
def test_bad_files_are_named(tmp_path, lines, options, message):
    file = write(tmp_path / "bad.csv", "time,a,b", *lines)
    with pytest.raises(InputError, match=message):
        build("sensor-replay", csv=file, **({"seed": 0} | options))


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        (torch.zeros(3), "readings must have a row for each point"),
        (torch.full((2, 1), float("nan")), "readings must be finite"),
        (torch.zeros(2, 3), r"arms must be \(A, d\) and readings \(T, A\)"),
        (torch.zeros(2, 1, dtype=torch.float64), "readings must have dtype torch.float32"),
    ],
)
def test_bad_readings_are_named(readings, message):
    with pytest.raises(InputError, match=message):
        SensorReplay(torch.zeros(1, 1), readings, 0)
