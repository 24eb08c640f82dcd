"""How the backend gets into torch.distributed, and what a user sees when something is wrong.

What depends on how torch is imported runs in fresh interpreters, the rest in forked ones.
"""

import json
import textwrap
from pathlib import Path

import pytest
from ranks.launch import fresh, report_of, torchrun

ALONE = """
import torch, torch.distributed as dist
def start(**options):
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1, **options)
"""


def test_import_torch_is_enough() -> None:
    printed = fresh(
        """
        import torch, sys, json
        import torch.distributed as dist
        loaded = [name for name in sys.modules if name.startswith("torch_neuronx_dist")]
        print(json.dumps([
            "neuron" in dist.Backend.backend_list,
            dist.Backend.default_device_backend_map["neuron"],
            dist.Backend.backend_capability["neuron"],
            "torch_neuronx_dist._C" in loaded,
            torch.neuron.is_initialized(),
        ]))
        """
    )
    assert json.loads(printed) == [True, "neuron", ["neuron"], False, False]


@pytest.mark.parametrize(
    "options",
    ['backend="neuron"', 'backend="cpu:gloo,neuron:neuron"', 'device_id=torch.device("neuron", 0)'],
)
def test_every_way_to_ask_for_it(options: str) -> None:
    program = ALONE + textwrap.dedent(
        f"""
        start({options})
        tensor = torch.ones(2, device="neuron")
        dist.all_reduce(tensor)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("neuron"))
        model(tensor).sum().backward()
        report([tensor.tolist(), type(dist.group.WORLD._get_backend(torch.device("neuron"))).__name__])
        dist.destroy_process_group()
        """
    )
    assert report_of(program) == [[1.0, 1.0], "ProcessGroupNeuron"]


def test_order_and_repetition_of_registrations_do_not_matter() -> None:
    printed = fresh(
        """
        import torch, torch.distributed as dist
        import torch_neuronx, torch_neuronx_dist
        from torch_neuronx._autoload import autoload as core
        from torch_neuronx_dist._autoload import autoload
        first = dist.Backend._plugins["NEURON"].creator_fn
        for call in (autoload, core, torch_neuronx_dist.register, core, autoload):
            call()
        print(dist.Backend._plugins["NEURON"].creator_fn is first, dist.Backend.backend_list.count("neuron"))
        """
    )
    assert printed == "True 1"


def test_by_hand_where_autoload_is_off() -> None:
    program = (
        ALONE
        + """
import torch_neuronx_dist
torch_neuronx_dist.register()
start(backend="neuron")
tensor = torch.ones(1, device="neuron")
dist.all_reduce(tensor)
print(tensor.item())
dist.destroy_process_group()
"""
    )
    assert fresh(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "1.0"


def test_autoload_survives_what_goes_wrong() -> None:
    printed = report_of(
        """
        import io, logging
        import torch, torch.distributed as dist
        from torch_neuronx_dist import _autoload
        _autoload._called = False
        def broken(*_, **__):
            raise OSError("no disk")
        dist.Backend.register_backend = broken
        printed = io.StringIO()
        logging.basicConfig(stream=printed, format="%(message)s", force=True)
        _autoload.autoload()
        report(printed.getvalue())
        """
    )
    assert printed.startswith("The torch.distributed backend 'neuron' could not be registered.")
    assert "no disk" in printed


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("sys.modules['torch_neuronx_dist._build_info'] = None", "without its compiled part"),
        ("import torch_neuronx_dist._build_info as b; b.TORCH_VERSION = '2.99.0'", "compiled for torch 2.99.0"),
        ("sys.modules['torch_neuronx_dist._C'] = None", "does not load"),
    ],
    ids=["missing", "another-torch", "unloadable"],
)
def test_a_broken_install_says_so_at_first_use(damage: str, says: str) -> None:
    program = ALONE + textwrap.dedent(
        f"""
        import sys
        {damage}
        try:
            start(backend="neuron")
        except ImportError as error:
            report([type(error).__name__, str(error)])
        """
    )
    kind, text = report_of(program)
    assert kind == "BrokenInstallError"
    assert says in text
    assert "pip install --force-reinstall" in text


def test_options_of_another_backend_are_refused() -> None:
    program = ALONE + textwrap.dedent(
        """
        try:
            start(backend="neuron", pg_options=object())
        except TypeError as error:
            report(str(error))
        """
    )
    assert "pg_options for backend 'neuron' are of type object" in report_of(program)


@pytest.mark.parametrize(("relaxed", "kept"), [("0", False), ("1", True)])
def test_float64_is_reduced_in_full_only_where_the_emulation_is_relaxed(relaxed: str, kept: bool) -> None:
    program = ALONE + textwrap.dedent(
        """
        start(backend="neuron")
        tensor = torch.tensor([1 + 2**-40], dtype=torch.float64).to("neuron")
        dist.all_reduce(tensor)
        report(tensor.cpu().item() == 1 + 2**-40)
        dist.destroy_process_group()
        """
    )
    assert report_of(program, TORCH_NEURONX_EMULATOR_RELAXED=relaxed) is kept


def test_split_groups_and_outsiders(tmp_path: Path) -> None:
    """Groups split from one with a bound device, beside a Gloo part that shares their store; under torchrun."""
    script = tmp_path / "split.py"
    script.write_text(
        textwrap.dedent(
            """
            import copy
            import torch, torch.distributed as dist

            dist.init_process_group("cpu:gloo,neuron:neuron", device_id=torch.device("neuron", 0))
            rank = dist.get_rank()
            group = dist.split_group(split_ranks=[[0, 1], [2, 3]])
            for device in ("cpu", "neuron"):
                tensor = torch.full((2,), rank + 1.0, device=device)
                dist.all_reduce(tensor, group=group)
                assert tensor.tolist() == [3.0 if rank < 2 else 7.0] * 2, tensor
            backend = group._get_backend(torch.device("neuron"))
            assert backend.supports_splitting
            options = copy.deepcopy(backend.options)
            assert list(options.global_ranks_in_group) == ([0, 1] if rank < 2 else [2, 3])
            outside = dist.new_group([0, 2])  # ranks 1 and 3 are not asked for anything
            if rank in (0, 2):
                tensor = torch.ones(1, device="neuron")
                dist.all_reduce(tensor, group=outside)
                assert tensor.item() == 2
            dist.barrier()
            dist.destroy_process_group()
            print(f"rank {rank} is done", flush=True)
            """
        )
    )
    assert torchrun(4, script).count("is done") == 4
