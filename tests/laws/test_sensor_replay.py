"""A row of a file is a round: readings, times, locations, and what is said of a file that does not fit."""

import numpy as np
import pytest
import torch
from problems import write

from torch_kbandits import InputError
from torch_kbandits.environments import SensorReplay, build, sensor_replay, sensors


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


@pytest.mark.parametrize("head", ["time,a,b,c", ",a,b,c", "2024,a,b,c", "day;a;b;c"])
def test_times_stand_aside_and_delimiters_are_found(tmp_path, head):
    _, lines = rows()
    plain = write(tmp_path / "plain.csv", "a,b,c", *lines)
    timed = [f"2024-01-{number + 1:02d} 06:00,{line}" for number, line in enumerate(lines)]
    timed = [line.replace(",", " ; ") for line in timed] if ";" in head else timed
    stamped = write(tmp_path / "stamped.csv", "\ufeff" + head, *timed, "")
    for maker in (sensor_replay, sensors):
        env, twin = (maker(file, seed=0) for file in (plain, stamped))
        assert env.center == twin.center
        assert torch.equal(env.arms, twin.arms)
        assert torch.equal(env.kernel.covariance, twin.kernel.covariance)
        assert torch.equal(env.pull(env.arms, 3), twin.pull(twin.arms, 3))
    for name, number in (("hour", 4), ("time", 3)):  # numbers, unless they are named
        numbered = write(tmp_path / "numbered.csv", f"{name},a,b,c", *(f"{i},{line}" for i, line in enumerate(lines)))
        assert len(sensor_replay(numbered, seed=0).arms) == number


def test_arms_are_where_the_sensors_are(tmp_path):
    readings, lines = rows()
    file = write(tmp_path / "r.csv", "a,b,c", *lines)
    expected = [[0.0, 1.5], [2.0, -1.0], [3.0, 0.5]]
    places = write(tmp_path / "l.csv", "sensor,x,y", "c,3,0.5", "a,0,1.5", "b,2,-1")
    env = sensor_replay(file, locations=places, seed=0)
    assert env.arms.tolist() == expected
    assert env.kernel is None
    assert env.center == pytest.approx(readings[:2].mean())
    assert env.pull(env.arms[[1]], 0).tolist() == [readings[2, 1]]


def test_sensors_learn_from_the_first_rows_and_draw_from_the_others(tmp_path):
    readings, lines = rows(11)
    env = build("sensors", seed=0, csv=write(tmp_path / "r.csv", "a,b,c", *lines), train_fraction=0.6)
    train, test, covariance = readings[:6], readings[6:], np.cov(readings[:6].T)
    assert env.arms.tolist() == [[0.0], [1.0], [2.0]]
    assert env.kernel(env.arms).to_dense().numpy() == pytest.approx(covariance)
    assert env.means.numpy() == pytest.approx(test.mean(0))
    assert env.center == pytest.approx(train.mean())
    assert env.regularization == pytest.approx(0.05 * np.diag(covariance).mean())
    assert env.noise_scale == pytest.approx(np.sqrt(env.regularization))
    assert env.norm_bound is None
    drawn = {tuple(env.pull(env.arms, number).tolist()) for number in range(60)}
    assert drawn == {tuple(row.tolist()) for row in test}


PLACES = [
    (["name,x", "kitchen,0", "hall,1"], "must have each of these sensors once: kitchen, hall, office"),
    (["name,x", "kitchen,0", "hal,1"], "'hal' is no sensor of which there are readings; did you mean 'hall'"),
    (["name,x", "kitchen,0", "kitchen,1", "hall,1", "office,2"], "each of these sensors once"),
    (["name,x,y", "kitchen,0,1", "hall,1,"], "line 3, column 'y': '' is not a finite number. Fill gaps"),
    (["name,x,y", "kitchen,0,1", "hall,1,north"], "line 3, column 'y': 'north' is not a finite number"),
    (["kitchen", "hall"], "of two columns or more"),
    (["name,x", "kitchen,0", "hall,1", "office,1"], "Arms 1 and 2 are the same point"),
    ([""], "must have names in its first row"),
]
LINES = ["time,a,b", "t0,1,2", "t1,3,5", "t2,4,4", "t3,5,1"]
ROWS = ["a,b", "1,2", "2,3", "3,5"]
FILES = [
    *(("sensor-replay", *case) for case in [
        ([*LINES, "t4,,3"], {}, "line 6, column 'a': '' is not a finite number. Fill gaps"),
        ([*LINES, "t4,3,NaN"], {}, "line 6, column 'b': 'NaN' is not a finite number"),
        ([*LINES, "t4,3"], {}, "line 6: expected 3 cells, got 2"),
        (LINES[:1], {}, r"0 row\(s\)"),
        (LINES, {"train_fraction": 0.26}, "1 are to learn from and 3 to replay"),
        (LINES, {"train_fraction": 1.0}, "train_fraction must be at least 0 and below 1"),
        ([*LINES[:1], "t,1,2", "t,1,3", "t,2,2"], {"train_fraction": 0.7}, r"sensor\(s\) a are constant over"),
        (LINES[:1], {"train_fraction": 0.0}, r"readings must be \(T, 2\) with T >= 1"),
    ]),
    *(("sensors", *case) for case in [
        (["1,2", "3,4"], {}, "must have names in its first row"),
        (["1 2", "3 4"], {}, "of two columns or more"),
        (["time,a", "1,2", "5,6"], {}, "one column of readings"),
        (ROWS, {"train_fraction": 0.5}, "1 are to learn from and 2 to replay"),
        (["a,b,c", "1,2,3", "1,3,3", "1,4,4", "2,5,6"], {}, r"sensor\(s\) a, c are constant over the 2"),
        (ROWS, {"train_fraction": 1.0}, "train_fraction must lie strictly between 0 and 1"),
    ]),
]  # fmt: skip
READINGS = [
    (torch.zeros(3), "readings must have a row for each point"),
    (torch.full((2, 1), float("nan")), "readings must be finite"),
    (torch.zeros(2, 3), r"readings must be \(T, 1\) with T >= 1"),
    (torch.zeros(2, 1, dtype=torch.float64), "readings must have dtype torch.float32"),
]


def test_bad_files_locations_and_readings_are_named(tmp_path):
    file = write(tmp_path / "r.csv", "kitchen,hall,office", *rows()[1])
    for places, message in PLACES:
        with pytest.raises(InputError, match=message):
            sensor_replay(file, locations=write(tmp_path / "l.csv", *places), seed=0)
    for name, lines, options, message in FILES:
        with pytest.raises(InputError, match=message):
            build(name, csv=write(tmp_path / "bad.csv", *lines), seed=0, **options)
    (tmp_path / "bytes.csv").write_bytes(b"1,2\n\xff\xfe,3\n")
    for name in ("none", "bytes"):
        with pytest.raises(InputError, match=rf"{name}\.csv cannot be read as a CSV file"):
            build("sensors", seed=0, csv=str(tmp_path / f"{name}.csv"))
    for readings, message in READINGS:
        with pytest.raises(InputError, match=message):
            SensorReplay(torch.zeros(1, 1), readings, 0)
