"""The generator: 16 bytes of state, one per core, apart from the CPU's."""

import pickle
from collections.abc import Callable, Iterator

import pytest
import torch

DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(7, device="neuron"),
    "randn": lambda: torch.randn(3, 5, device="neuron"),
    "randint": lambda: torch.randint(0, 1000, (9,), device="neuron"),
    "randperm": lambda: torch.randperm(20, device="neuron"),
    "bernoulli": lambda: torch.bernoulli(torch.full((30,), 0.5, device="neuron")),
    "uniform_": lambda: torch.empty(5, device="neuron").uniform_(-1, 1),
    "exponential_": lambda: torch.empty(5, device="neuron").exponential_(),
    "random_": lambda: torch.empty(5, dtype=torch.int32, device="neuron").random_(),
    "multinomial": lambda: torch.multinomial(torch.ones(50, device="neuron"), 10),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(40, device="neuron"), 0.5),
    "feature dropout": lambda: torch.nn.functional.dropout2d(torch.ones(4, 16, 2, 2, device="neuron"), 0.5),
    "rrelu": lambda: torch.nn.functional.rrelu(-torch.ones(10, device="neuron"), training=True),
    "rand_like": lambda: torch.rand_like(torch.empty(6, device="neuron")),
    "normal": lambda: torch.normal(0.0, torch.ones(6, device="neuron")),
    "distribution": lambda: torch.distributions.Gamma(torch.ones(5, device="neuron"), 1.0).sample(),
}


@pytest.fixture(autouse=True)
def _states_come_back() -> Iterator[None]:
    with torch.random.fork_rng(devices=range(4), device_type="neuron"):
        yield


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_seed_makes_draws_reproducible_and_leaves_the_cpu_alone(draw: Callable[[], torch.Tensor]) -> None:
    torch.manual_seed(1)
    cpu = torch.get_rng_state()
    first, second = draw(), draw()
    assert torch.equal(torch.get_rng_state(), cpu)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(draw(), first)
    torch.neuron.manual_seed(1)
    assert torch.equal(draw(), first)
    assert torch.equal(draw(), second)


def test_the_state_is_seed_and_offset() -> None:
    torch.neuron.manual_seed(0x1234)
    state = torch.neuron.get_rng_state()
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8
    assert state.view(torch.int64).tolist() == [0x1234, 0]
    torch.rand(10, device="neuron")
    seed, offset = torch.neuron.get_rng_state().view(torch.int64).tolist()
    assert seed == 0x1234
    assert offset >= 10
    assert offset % 4 == 0
    assert torch.neuron.initial_seed() == 0x1234


def test_a_state_comes_back() -> None:
    torch.rand(3, device="neuron")
    state = torch.neuron.get_rng_state("neuron:0")
    first = torch.rand(5, device="neuron")
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="neuron"), first)
    states = torch.neuron.get_rng_state_all()
    assert len(states) == 4
    drawn = [torch.rand(2, device=f"neuron:{core}") for core in range(4)]
    torch.neuron.set_rng_state_all(states)
    assert all(torch.equal(torch.rand(2, device=x.device), x) for x in drawn)


def test_cores_draw_apart() -> None:
    torch.neuron.manual_seed_all(3)
    zero = torch.rand(4, device="neuron:0")
    torch.neuron.manual_seed_all(3)
    torch.rand(40, device="neuron:1")
    assert torch.equal(torch.rand(4, device="neuron:0"), zero), "another core's draws change nothing here"
    with torch.neuron.device(1):
        torch.neuron.manual_seed(99)
        assert torch.neuron.initial_seed() == 99
    assert torch.neuron.initial_seed() == 3


def test_seeds_from_the_system() -> None:
    assert torch.neuron.seed() != torch.neuron.seed()
    seed = torch.neuron.seed_all()
    assert all(generator.initial_seed() == seed for generator in torch.neuron.default_generators)


def test_own_generators() -> None:
    generator = torch.Generator(device="neuron")
    assert generator.device == torch.device("neuron:0")
    generator.manual_seed(7)
    default = torch.neuron.get_rng_state()
    first = torch.randn(6, device="neuron", generator=generator)
    assert torch.equal(torch.neuron.get_rng_state(), default)
    generator.manual_seed(7)
    assert torch.equal(torch.empty(6, device="neuron").normal_(generator=generator), first)
    copy = generator.clone_state()
    assert torch.equal(
        torch.rand(3, device="neuron", generator=copy), torch.rand(3, device="neuron", generator=generator)
    )
    again = pickle.loads(pickle.dumps(generator))
    assert torch.equal(again.get_state(), generator.get_state())
    generator.set_state(copy.get_state())
    assert generator.get_offset() == copy.get_offset()
    generator.set_offset(64)
    assert generator.get_offset() == 64
    with pytest.raises(RuntimeError, match="multiple of 4, not 3"):
        generator.set_offset(3)


@pytest.mark.parametrize(("device", "generator"), [("neuron", "cpu"), ("cpu", "neuron")])
def test_a_generator_serves_its_own_device(device: str, generator: str) -> None:
    with pytest.raises(RuntimeError, match=f"Expected a '{device}' device type for generator but found '{generator}'"):
        torch.rand(3, device=device, generator=torch.Generator(device=generator))


def test_states_of_others_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"16 bytes .* this one has 5056.*torch\.manual_seed"):
        torch.neuron.set_rng_state(torch.get_rng_state())
    with pytest.raises(TypeError, match="ByteTensor"):
        torch.neuron.set_rng_state(torch.zeros(4))


def test_fork_rng() -> None:
    torch.manual_seed(1)
    before = torch.neuron.get_rng_state_all()
    with torch.random.fork_rng(devices=[0, 2], device_type="neuron"):
        torch.manual_seed(2)
        torch.rand(5, device="neuron:0")
        torch.rand(5, device="neuron:2")
    after = torch.neuron.get_rng_state_all()
    assert [torch.equal(x, y) for x, y in zip(before, after, strict=True)] == [True, False, True, False]
    with torch.random.fork_rng(devices=["neuron:3"], device_type="neuron"):
        torch.neuron.manual_seed_all(5)
    assert torch.neuron.get_rng_state(3).view(torch.int64)[0] == 2


def test_deterministic_mode_fills_what_is_empty() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(9, device="neuron").isnan().all()
        assert torch.empty(9, dtype=torch.int32, device="neuron").eq(2**31 - 1).all()
        grown = torch.zeros(2, device="neuron").resize_(5)
        assert grown[:2].eq(0).all()
        assert grown[2:].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)
