"""Regret uses noise-free means and consumes no randomness of the run."""

import numpy as np
import pytest
import torch
from problems import DOUBLE, data

from torch_kbandits import InputError
from torch_kbandits.environments import FiniteArms, gaussian_bumps


def test_regret_is_the_distance_to_the_best_mean():
    arms, _ = data(4, 2)
    env = FiniteArms(arms, torch.tensor([0.1, 0.9, 0.4, 0.9], dtype=DOUBLE), noise_scale=5.0, seed=0)
    assert env.regret(arms).tolist() == pytest.approx([0.8, 0.0, 0.5, 0.0])
    assert float(env.best_mean) == 0.9


def test_measuring_regret_and_pulling_more_shift_no_noise():
    env, twin = gaussian_bumps(20, 2, seed=1), gaussian_bumps(20, 2, seed=1)
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    for number in range(5):
        env.regret(env.arms)
        env.pull(env.arms[:3], 100 + number)
        assert torch.equal(env.pull(env.arms[:1], number), twin.pull(twin.arms[:1], number))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_noise_has_the_stated_scale():
    """20,000 normal draws: the mean within 4.5 σ/√n and the deviation within 4.5 σ/√2n; false alarms below 2e-5."""
    env = FiniteArms(data(1, 1)[0], torch.zeros(1, dtype=DOUBLE), noise_scale=0.3, seed=4)
    noise = env.pull(env.arms.expand(20_000, 1), 0).numpy()
    assert abs(noise.mean()) < 4.5 * 0.3 / np.sqrt(20_000)
    assert abs(noise.std() - 0.3) < 4.5 * 0.3 / np.sqrt(40_000)


def test_bumps_span_the_unit_interval_and_follow_the_formula():
    env = gaussian_bumps(200, 3, num_bumps=4, lengthscale=0.2, seed=2)
    assert env.arms.shape == (200, 3)
    assert float(env.means.min()) == 0.0
    assert float(env.means.max()) == 1.0
    assert gaussian_bumps(10, 2, seed=0, dtype=torch.float32).means.dtype == torch.float32
    # The lengthscale rules how fast neighbours differ: means a hundredth apart differ by at most Σ|h| e^-½ / ℓ / 100.
    near = torch.cdist(env.arms, env.arms) < 0.02
    assert float((env.means[:, None] - env.means[None, :]).abs()[near].max()) < 0.3


def test_noise_differs_from_round_to_round():
    env = gaussian_bumps(5, 2, seed=0)
    assert len({float(env.pull(env.arms[:1], number)) for number in range(10)}) == 10


def test_one_arm_cannot_be_scaled():
    with pytest.raises(InputError, match="num_arms must be at least 2"):
        gaussian_bumps(1, 2, seed=0)


def test_what_is_no_arm_has_no_mean():
    env = gaussian_bumps(5, 2, seed=0)
    with pytest.raises(InputError, match=r"Row\(s\) \[1\] of X are no arms"):
        env.mean(torch.cat([env.arms[:1], env.arms[:1] + 1.0]))


@pytest.mark.parametrize(
    ("arms", "means", "noise", "message"),
    [
        (torch.rand(3, 2), torch.zeros(2), 0.1, r"means \(A,\)"),
        (torch.rand(3, 2), torch.tensor([0.0, float("nan"), 1.0]), 0.1, "means must be finite"),
        (torch.rand(3, 2), torch.zeros(3), -0.1, "noise_scale"),
        (torch.rand(0, 2), torch.zeros(0), 0.1, "A >= 1"),
    ],
)
def test_bad_environments_are_named(arms, means, noise, message):
    with pytest.raises(InputError, match=message):
        FiniteArms(arms, means, noise, seed=0)
