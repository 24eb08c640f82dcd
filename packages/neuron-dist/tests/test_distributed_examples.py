"""The examples: under torchrun as users start them, and their variants on the ranks that the other tests use."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from ranks.launch import Torchrun, run_example, torchrun, torchrun_command
from ranks.world import World

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "distributed"
pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are in the repository, not in the sdist")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("smoke", []),
        ("train", [["--mode", "ddp"]]),
        ("train", [["--mode", "fsdp"]]),
        ("train", [["--mode", "tp", "--tp-degree", "2"]]),
        ("train", [["--device", "cpu"]]),
        ("pipeline", [["--schedule", "gpipe"]]),
        ("pipeline", [["--schedule", "1f1b"]]),
        ("pipeline", [["--schedule", "interleaved"]]),
        ("fsdp_tp", [["--tp-degree", "2"]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "".join("".join(words) for words in value),
)
def test_cpu_and_neuron_agree(four: World, name: str, arguments: list[list[str]]) -> None:
    four.run(run_example, str(EXAMPLES), name, *arguments)


def test_as_users_start_them() -> None:
    assert torchrun_command(2, EXAMPLES / "smoke.py").count("the sum over 2 ranks is 3") == 2
    assert torchrun(2, EXAMPLES / "train.py", "--mode", "tp").count("cpu and neuron agree") == 2


def ended(text: str) -> float:
    match = re.search(r"ended after step 6 with loss ([0-9.]+)", text)
    assert match is not None, text
    return float(match[1])


def test_a_restarted_job_goes_on_where_it_stopped(tmp_path: Path) -> None:
    jobs = []
    with ExitStack() as stack:  # side by side, because both wait much; each with cores of its own
        for name, crash in (("whole", ()), ("crashed", ("--crash-at", "3"))):
            folder = tmp_path / name
            folder.mkdir()
            arguments = ("--folder", str(folder / "checkpoints"), *crash)
            options = ("--standalone", "--nproc-per-node=2", "--max-restarts=1")
            job = Torchrun(EXAMPLES / "elastic.py", *options, arguments=arguments, XDG_RUNTIME_DIR=str(folder))
            jobs.append(stack.enter_context(job))
        whole, crashed = [job.end() for job in jobs]
    assert (whole.code, crashed.code) == (0, 0), whole.err + crashed.err
    assert re.findall(r"starting at step (\d)", crashed.out) == ["0", "3"]
    assert ended(crashed.out) == pytest.approx(ended(whole.out), rel=1e-6)
