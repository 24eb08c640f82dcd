"""Serves fresh processes: each case runs in a fork of this one, which has imported torch and never opened the device.

A fork costs milliseconds where `import torch` costs seconds. Variables are read when the device is first used, so a
case sees its own. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 nothing of torch_neuronx is loaded before the case runs.

    python fresh_processes.py <path of torch_neuronx/testing/isolation.py>
"""

import faulthandler
import importlib.util
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, NoReturn

import torch

assert not hasattr(torch, "neuron") or not torch.neuron.is_initialized()


def child(code: str, environment: dict[str, str], output: int, errors: int) -> NoReturn:
    status = 1
    try:
        os.setpgid(0, 0)  # with what it forks, so that a hang can be ended whole
        os.dup2(output, 1)
        os.dup2(errors, 2)
        faulthandler.enable(file=2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        os.environ.update(environment)
        exec(compile(code, "<case>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(pid, signal.SIGABRT)  # each process of the case says on standard error where it hung
    time.sleep(1)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def run(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            child(case["code"], case["environment"], output.fileno(), errors.fileno())
        status = wait(pid, case["seconds"])
        output.seek(0)
        errors.seek(0)
        return {"status": status, "out": output.read().decode(), "err": errors.read().decode()}


def load(path: str) -> Any:
    """Load a module by its file: importing its package would register the device."""
    spec = importlib.util.spec_from_file_location("isolation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["isolation"] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    load(sys.argv[1]).serve(run)
