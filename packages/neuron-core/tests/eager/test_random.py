"""One counter-based generator per core feeds every random operator."""

from collections.abc import Callable

import pytest
import torch

DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(100, device="neuron"),
    "randn": lambda: torch.randn(100, device="neuron"),
    "randint": lambda: torch.randint(0, 1000, (100,), device="neuron"),
    "randperm": lambda: torch.randperm(100, device="neuron"),
    "normal_": lambda: torch.empty(100, device="neuron").normal_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((100,), 0.5, device="neuron")),
    "multinomial": lambda: torch.multinomial(torch.ones(100, device="neuron"), 50),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(100, device="neuron")),
    "poisson": lambda: torch.poisson(torch.full((100,), 4.0, device="neuron")),
    "rrelu": lambda: torch.nn.functional.rrelu(-torch.ones(100, device="neuron"), training=True),
    "bfloat16": lambda: torch.randn(100, device="neuron", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_reproduces_and_draws_move_on(name: str) -> None:
    draw = DRAWS[name]
    torch.neuron.manual_seed(7)
    first, second = draw(), draw()
    torch.neuron.manual_seed(7)
    again = draw()
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), second.cpu())


def test_torch_manual_seed_reaches_every_core() -> None:
    torch.manual_seed(3)
    first = [torch.rand(4, device=f"neuron:{i}").cpu() for i in range(torch.neuron.device_count())]
    torch.manual_seed(3)
    for i, values in enumerate(first):
        assert torch.equal(values, torch.rand(4, device=f"neuron:{i}").cpu())


def test_the_cpu_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    for draw in DRAWS.values():
        draw()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_state_is_seed_and_offset() -> None:
    torch.neuron.manual_seed(2**40 + 5)
    torch.rand(10, device="neuron")
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    seed, offset = state.view(torch.int64).tolist()
    assert (seed, offset) == (2**40 + 5, 12)  # ten draws, rounded up to a multiple of four
    expected = torch.rand(3, device="neuron")
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="neuron").cpu(), expected.cpu())


def test_an_own_generator_is_independent() -> None:
    mine = torch.Generator(device="neuron").manual_seed(1)
    torch.neuron.manual_seed(1)
    before = torch.neuron.get_rng_state()
    values = torch.rand(5, generator=mine, device="neuron")
    assert torch.equal(torch.neuron.get_rng_state(), before)
    assert torch.equal(torch.rand(5, device="neuron").cpu(), values.cpu())  # same seed, same stream


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator but found 'cpu'"):
        torch.empty(3, device="neuron").normal_(generator=torch.Generator())


def test_statistics_are_those_of_the_distribution() -> None:
    torch.neuron.manual_seed(0)
    values = torch.randn(200_000, device="neuron")
    assert abs(values.mean().item()) < 0.01
    assert abs(values.std().item() - 1) < 0.01
