"""Optuna's own tests of samplers, run on ours."""

import optuna
import pytest
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase

from torch_kbandits.integrations.optuna import KernelBanditSampler


class TestKernelBanditSampler(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        return lambda: KernelBanditSampler(seed=0, n_startup_trials=2)
