import os

import hypothesis
import pytest
import torch

# Each test process has a core of its own; threads on top of that only get in each other's way. Another number rounds
# otherwise, which no law may depend on.
torch.set_num_threads(int(os.environ.get("KBANDITS_TEST_THREADS", "1")))

# Derandomised: a failure here is a failure everywhere. Deadlines measure the machine, not the code.
hypothesis.settings.register_profile("default", derandomize=True, deadline=None, max_examples=30, print_blob=True)
hypothesis.settings.load_profile("default")


def pytest_configure(config):
    """Whether a line search ends abnormally is a matter of rounding, and BoTorch tries again."""
    config.addinivalue_line("filterwarnings", "ignore:Optimization failed:RuntimeWarning")


@pytest.fixture(autouse=True)
def _fixed_global_generator():
    """BoTorch draws from torch's global generator; give every test the same."""
    torch.manual_seed(0)
