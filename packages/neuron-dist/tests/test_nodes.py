"""Two hosts: network namespaces of this machine, joined by a pair of virtual network interfaces."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from ranks.launch import Torchrun

SCRIPT = """
import os, socket, torch, torch.distributed as dist
dist.init_process_group("neuron")
tensor = torch.full((1 << 16,), dist.get_rank() + 1.0, device="neuron")
dist.all_reduce(tensor)
gathered = torch.empty(4, device="neuron")
dist.all_gather_single(gathered, torch.full((1,), float(dist.get_rank()), device="neuron"))
print(f"sum {tensor.unique().tolist()} ranks {gathered.tolist()} core {torch.neuron.current_device()}", flush=True)
dist.destroy_process_group()
"""
PORT = 29_431
"""Nobody else has it in a network namespace of one's own."""


@dataclass(frozen=True)
class Host:
    """A network namespace."""

    name: str
    interface: str
    address: str

    def start(self, script: Path, node: int, folder: Path) -> Torchrun:
        """Start torchrun with two ranks on this host; the first host's address is the rendezvous."""
        launch = ["--nnodes=2", "--nproc-per-node=2"]
        meet = ["--rdzv-backend=c10d", f"--rdzv-endpoint={FIRST_ADDRESS}:{PORT}", "--rdzv-id=two-hosts"]
        # torchrun finds out by itself which host has the store only where host names resolve.
        host = [f"--rdzv-conf=is_host={int(node == 0)}", f"--local-addr={self.address}"]
        extra = {"GLOO_SOCKET_IFNAME": self.interface, "XDG_RUNTIME_DIR": str(folder / self.name)}
        return Torchrun(script, *launch, *meet, *host, namespace=self.name, **extra)


FIRST_ADDRESS = "10.231.77.1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    if shutil.which("ip") is None:
        pytest.skip("the command ip (iproute2) is not installed")
    mark = os.getpid()
    pair = Host(f"nrn{mark}a", f"va{mark}", FIRST_ADDRESS), Host(f"nrn{mark}b", f"vb{mark}", "10.231.77.2")
    try:
        for host in pair:
            ip("netns", "add", host.name)
    except subprocess.CalledProcessError as error:
        subprocess.run(["ip", "netns", "del", pair[0].name], capture_output=True, check=False)
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
    try:
        ip("link", "add", pair[0].interface, "type", "veth", "peer", "name", pair[1].interface)
        for host in pair:
            ip("link", "set", host.interface, "netns", host.name)
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.interface)
            ip("-n", host.name, "link", "set", host.interface, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield pair
    finally:
        for host in pair:
            ip("netns", "del", host.name)


def test_four_ranks_on_two_hosts(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for host in hosts:
        (tmp_path / host.name).mkdir()
    with ExitStack() as stack:
        running = [stack.enter_context(host.start(script, node, tmp_path)) for node, host in enumerate(hosts)]
        ended = [launcher.end() for launcher in running]
    for launcher in ended:
        assert launcher.code == 0, launcher.err
        assert launcher.out.count("sum [10.0] ranks [0.0, 1.0, 2.0, 3.0] core 0") == 2
