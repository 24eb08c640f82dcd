"""Draws from weights: no CPU's numbers to compare with, so what holds of them."""

import pytest
import torch

from .helpers import compiled


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_draws_what_has_a_weight(replacement: bool) -> None:
    weights = torch.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 0.0, 0.0, 2.0]]).repeat(500, 1)
    drawn = compiled(lambda w: torch.multinomial(w, 2, replacement=replacement))(weights.to("neuron")).cpu()
    assert (weights.gather(1, drawn) > 0).all()
    if replacement:
        assert 0.69 < (drawn[::2] == 2).double().mean() < 0.81
    else:
        assert (drawn[:, 0] != drawn[:, 1]).all()
        assert 0.67 < (drawn[::2, 0] == 2).double().mean() < 0.83
