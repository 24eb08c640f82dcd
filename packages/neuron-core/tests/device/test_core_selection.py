"""Which cores a process sees: read from the environment on first use."""

from typing import Any

import pytest

LOOK = """
import json, torch
count = torch.neuron.device_count()
assert not torch.neuron.is_initialized()
torch.ones(1, device="neuron")
properties = [torch.neuron.get_device_properties(i) for i in range(count)]
print(json.dumps({
    "count": [count, torch.neuron.device_count(), torch.accelerator.device_count()],
    "logical": [p.logical_core for p in properties],
    "physical": [list(p.physical_cores) for p in properties],
    "lnc": properties[0].lnc,
    "name": [properties[0].name, torch.neuron.get_device_name()],
    "memory": [properties[0].total_memory, torch.neuron.mem_get_info()[1]],
    "capability": list(torch.neuron.get_device_capability()),
    "units": properties[0].multi_processor_count,
    "bf16": torch.neuron.is_bf16_supported(),
}))
"""
GIB = 2**30
PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param(
            {},
            {"count": [4] * 3, "logical": [0, 1, 2, 3], "physical": PAIRS, "lnc": 2, "name": ["trn2"] * 2,
             "memory": [24 * GIB] * 2, "capability": [3, 0], "units": 2, "bf16": True},
            id="default",
        ),
        ({"NEURON_RT_NUM_CORES": "2"}, {"count": [2] * 3, "logical": [0, 1]}),
        ({"NEURON_RT_NUM_CORES": "0"}, {"count": [4] * 3}),
        ({"NEURON_RT_VISIBLE_CORES": "3"}, {"count": [1] * 3, "logical": [3], "physical": [[6, 7]]}),
        ({"NEURON_RT_VISIBLE_CORES": "1-2"}, {"count": [2] * 3, "logical": [1, 2]}),
        ({"NEURON_RT_VISIBLE_CORES": "2,0"}, {"logical": [2, 0]}),
        ({"NEURON_RT_VISIBLE_CORES": "1", "NEURON_RT_NUM_CORES": "3"}, {"logical": [1]}),
        (
            {"NEURON_LOGICAL_NC_CONFIG": "1"},
            {"count": [8] * 3, "lnc": 1, "memory": [12 * GIB] * 2, "physical": [[i] for i in range(8)], "units": 1},
        ),
        (
            {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"},
            {"name": ["trn3"] * 2, "capability": [4, 0], "count": [4] * 3, "memory": [36 * GIB] * 2},
        ),
        ({"TORCH_NEURONX_EMULATOR_HBM_BYTES": "128MiB"}, {"memory": [2**27] * 2}),
        ({"NEURON_LOGICAL_NC_CONFIG": "1", "TORCH_NEURONX_EMULATOR_HBM_BYTES": "1GiB"}, {"memory": [GIB] * 2}),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items())[:60] if isinstance(value, dict) else None,
)  # fmt: skip
def test_variables_decide(fresh: Any, environment: dict[str, str], expected: dict[str, Any]) -> None:
    answer = fresh(LOOK, **environment).answer
    assert {key: answer[key] for key in expected} == expected


def test_cores_that_are_not_shown_do_not_exist(fresh: Any) -> None:
    done = fresh("import torch; torch.ones(1, device='neuron:1')", NEURON_RT_VISIBLE_CORES="3")
    assert done.status == 1
    last = done.err.strip().splitlines()[-1]
    assert last.startswith(
        "torch_neuronx.errors.DeviceError: There is no device neuron:1: this process sees one Neuron core, neuron:0."
    )


def test_variables_are_read_on_first_use_and_then_no_more(fresh: Any) -> None:
    code = """
    import os, json, torch
    os.environ["NEURON_RT_NUM_CORES"] = "2"
    before = torch.neuron.device_count()
    torch.ones(1, device="neuron")
    os.environ["NEURON_RT_NUM_CORES"] = "3"
    print(json.dumps([before, torch.neuron.device_count(), torch.neuron.get_device_properties(1).logical_core]))
    """
    assert fresh(code).answer == [2, 2, 1]


INVALID = {
    "NEURON_RT_VISIBLE_CORES": "9",
    "NEURON_RT_NUM_CORES": "many",
    "NEURON_LOGICAL_NC_CONFIG": "3",
    "NEURON_PLATFORM_TARGET_OVERRIDE": "trn9",
    "TORCH_NEURONX_EMULATOR_HBM_BYTES": "-1",
    "TORCH_NEURONX_EMULATOR_PROTECT": "maybe",
    "TORCH_NEURONX_EMULATOR_RELAXED": "2",
    "TORCH_NEURONX_STRICT_INT64": "x",
    "TORCH_NEURONX_TRACK_OPS": "x",
    "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS": "x",
    "TORCH_NEURONX_ENABLE_CONCATENATION": "x",
    "NEURON_LAUNCH_BLOCKING": "x",
    "TORCH_NEURONX_RUNTIME": "gpu",
    "TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG": "x=1",
}


@pytest.mark.parametrize("variable", INVALID)
def test_a_value_that_cannot_be_used_is_named_on_first_use(fresh: Any, variable: str) -> None:
    code = """
    import json, torch
    from torch_neuronx.errors import ConfigurationError
    answers = [torch.neuron.is_available() in (True, False), torch.accelerator.is_available() in (True, False)]
    for use in (lambda: torch.ones(1, device="neuron"), lambda: torch.nn.Linear(1, 1).to("neuron"), torch.neuron.init):
        try:
            use()
        except ConfigurationError as error:
            answers.append(str(error))
    print(json.dumps(answers))
    """
    answers = fresh(code, **{variable: INVALID[variable]}).answer
    assert answers[:2] == [True, True], "asking whether there is a device never raises"
    assert len(answers) == 5, "each use raises"
    assert all(variable in text and INVALID[variable] in text for text in answers[2:])
