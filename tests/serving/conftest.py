import pytest
from served import BANDITS, saved

from torch_kbandits.serving import Service


@pytest.fixture
def service(tmp_path):
    """One of a bandit on arms, which need not be closed."""
    found = Service.open(saved(BANDITS["bkb"], tmp_path))
    yield found
    found.journal.close()
    found._sole.release()
