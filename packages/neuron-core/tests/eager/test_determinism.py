"""torch.use_deterministic_algorithms is honoured."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_uninitialised_memory_is_filled() -> None:
    assert torch.empty(10, device="neuron").isnan().all()
    assert torch.empty_strided((2, 3), (3, 1), device="neuron").isnan().all()
    assert (torch.empty(4, dtype=torch.int32, device="neuron") == torch.iinfo(torch.int32).max).all()
    grown = torch.zeros(2, device="neuron").resize_(5)
    assert grown[2:].isnan().all()


@pytest.mark.usefixtures("deterministic")
def test_accumulation_repeats_bit_for_bit() -> None:
    index = torch.randint(0, 10, (10_000,))
    values = torch.randn(10_000)
    results = [
        torch.zeros(10, device="neuron").index_put_((index.to("neuron"),), values.to("neuron"), accumulate=True).cpu()
        for _ in range(3)
    ]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
