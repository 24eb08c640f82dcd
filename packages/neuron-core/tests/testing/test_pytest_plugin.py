"""The pytest plugin, seen from a test suite that uses it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = "torch_neuronx.testing.pytest_plugin"


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    # By name, so that the plugin is there whether or not the distribution is installed, and then once only.
    pytester.makeini(f"[pytest]\naddopts = -p {PLUGIN} -p no:torch_neuronx --strict-markers\n")
    return pytester


def test_the_plugin_loads_nothing_heavy(tmp_path: Path) -> None:
    program = f"import sys, {PLUGIN}; print(sorted({{'torch', 'jax', 'torch_mlir', 'numpy'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_tests_that_need_the_chip_are_skipped_with_the_reason(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.neuron_device
        def test_on_the_chip():
            raise AssertionError("ran")
        """
    )
    result = suite.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs a Neuron device: *"])


def test_a_test_that_changes_the_environment_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os
        import pytest
        import torch
        import torch._functorch.config as config

        pytestmark = pytest.mark.usefixtures("unchanged_configuration")

        def test_leaves_everything():
            torch.ones(2).sum()

        def test_sets_a_variable():
            os.environ["SOME_VARIABLE"] = "1"

        def test_sets_a_default():
            torch.set_default_dtype(torch.float64)

        def test_sets_a_configuration():
            config.debug_assert = not config.debug_assert
        """
    )
    result = suite.runpytest_subprocess("-p", "no:randomly")
    result.stdout.fnmatch_lines(
        [
            "*environment: SOME_VARIABLE was None, is '1'*",
            "*torch: default dtype was torch.float32, is torch.float64*",
            "*torch._functorch.config: debug_assert was*",
        ]
    )
    result.assert_outcomes(passed=4, errors=3)


def test_device_fixtures(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import torch

        def test_device(neuron_device):
            assert neuron_device.type == "neuron"
            assert neuron_device.index is not None

        def test_compare(compare_with_cpu):
            found = compare_with_cpu(torch.mm, torch.randn(3, 4, requires_grad=True), torch.randn(4, 2))
            assert (found.outputs, found.gradients) == (1, 1)

        def test_tracking(neuron_device, op_tracking):
            x = torch.randn(3, 3, device=neuron_device)
            op_tracking.clear()
            x @ x
            torch.complex(x, x)
            assert "aten::mm" in op_tracking.executed
            assert op_tracking.fallbacks == ["aten::complex"]
            op_tracking.clear()
            assert op_tracking.executed == []
        """
    )
    suite.runpytest_subprocess().assert_outcomes(passed=3)
