"""What the host knows of tensors on a device: it holds until somebody writes to them, and nobody waits for it."""

import pytest
import torch
from problems import DOUBLE

from benchmarks.pretend_device import PretendDevice, is_possible
from torch_kbandits.numerics.places import are_equal, beside, copied, known, listed, on_host, recalled, sent

pytestmark = pytest.mark.skipif(not is_possible(), reason="this PyTorch does not let Python make devices")
NUMBERS = torch.arange(6.0)


@pytest.fixture
def there():
    device = PretendDevice(100)
    with device:
        yield device


def test_what_is_sent_is_known_there_and_goes_in_one_copy(there):
    like = torch.zeros(0, device=there.device)
    with there.counted() as counts:
        parts = sent(like, NUMBERS.double().view(2, 3), torch.ones(()), torch.zeros(0, 3))
        values = [on_host(part) for part in parts]
    assert (counts.sent, counts.launches, counts.syncs.total()) == (1, 0, 0)
    assert [part.shape for part in parts] == [(2, 3), (), (0, 3)]
    assert {(part.dtype, part.device) for part in parts} == {(torch.float32, there.device)}
    for part, value in zip(parts, values, strict=True):
        assert torch.equal(part.cpu(), value)


def test_values_are_known_until_somebody_writes_to_them(there):
    x = beside(NUMBERS, torch.zeros(0, device=there.device))
    part = x[2:]
    with there.counted() as counts:
        assert listed(x) == NUMBERS.tolist()
    assert counts.syncs.total() == 0
    part += 1.0  # by way of another tensor on the same memory
    assert recalled(x) is None
    assert listed(x) == [0.0, 1.0, 3.0, 4.0, 5.0, 6.0]
    assert recalled(x) is not None
    x[0] = 7.0
    assert recalled(x) is None


def test_rows_that_stay_are_known_whatever_is_written_behind_them(there):
    buffer = torch.zeros(6, device=there.device)
    rows = known(buffer[:3], torch.zeros(3), stays=True)
    buffer[3:] = 1.0
    with there.counted() as counts:
        assert listed(rows) == [0.0, 0.0, 0.0]
    assert counts.syncs.total() == 0


def test_copies_are_known_as_far_as_what_they_are_of(there):
    x = known(NUMBERS.to(there.device), NUMBERS)
    copy, unknown = copied(x), copied(NUMBERS.to(there.device))
    with there.counted() as counts:
        assert are_equal(x, copy)
        assert not are_equal(x, beside(NUMBERS + 1.0, x))
        assert not are_equal(x, unknown[:3])
    assert counts.syncs.total() == 0
    x += 1.0
    with there.counted() as counts:
        assert listed(copy) == NUMBERS.tolist()
        assert counts.syncs.total() == 0
        assert not are_equal(x, copy)
        assert recalled(unknown) is None
    assert counts.syncs.total() == 1


def test_what_is_on_the_host_is_itself():
    assert on_host(NUMBERS) is recalled(NUMBERS) is beside(NUMBERS, NUMBERS) is NUMBERS
    assert sent(NUMBERS, NUMBERS)[0] is NUMBERS
    assert sent(NUMBERS.double(), NUMBERS)[0].dtype == DOUBLE
    assert copied(NUMBERS) is not NUMBERS
    with torch.inference_mode():
        assert listed(torch.ones(2)) == [1.0, 1.0]
