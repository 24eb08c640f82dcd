"""The rendezvous ``neuron://``: PyTorch's ``env://``, which says early what it cannot reach, and starts again.

``env://`` tries again until its timeout, without a word, because ranks may start before the process that keeps the
store. This one does too, but what no waiting mends (no such host, no route) is an error at once, and the first
refused connection is logged with the address. Where ``torchrun`` gives the ranks it starts again the store of the
attempt before, they use another part of it, whatever the backends.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch_neuronx_dist.errors import RendezvousError

if TYPE_CHECKING:
    from torch_neuronx_dist._compat import Store

SCHEME = "neuron"

_log = logging.getLogger("torch_neuronx_dist")
_TRY = 3.0
"""Seconds for one connection."""
_PAUSE = 0.5
_HOPELESS = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM}


def register() -> None:
    """Offer ``init_method="neuron://"`` to torch.distributed. Calling it again changes nothing."""
    from torch.distributed.rendezvous import register_rendezvous_handler

    try:
        register_rendezvous_handler(SCHEME, meet)  # type: ignore[no-untyped-call]
    except RuntimeError:  # torch has the scheme, from a call before
        _log.debug("the rendezvous %s:// is registered already", SCHEME)


def meet(url: str, timeout: timedelta = timedelta(minutes=5), **options: Any) -> Iterator[tuple[Store, int, int]]:
    """Check that the store's address can be reached, then meet as ``env://`` does. Raises RendezvousError."""
    from torch.distributed.rendezvous import rendezvous

    from torch_neuronx_dist import session
    from torch_neuronx_dist._compat import PrefixStore

    rank = os.environ.get("RANK", "")
    keeps_store = rank == "0" and not session.launcher_keeps_store()
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if host and port.isdecimal() and not keeps_store:  # env:// says itself which variable is missing
        wait_until_reachable(host, int(port), timeout.total_seconds())
    for store, number, size in rendezvous(url.replace(f"{SCHEME}://", "env://", 1), timeout=timeout, **options):
        if session.launcher_keeps_store():
            store = PrefixStore(session.agree(store, number, size), store)
        yield store, number, size


def wait_until_reachable(host: str, port: int, timeout: float) -> None:
    """Return when something accepts a connection at ``host:port``.

    Raises RendezvousError at once where waiting cannot help, else after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    told = False
    while True:
        left = deadline - time.monotonic()
        try:
            socket.create_connection((host, port), timeout=max(0.01, min(_TRY, left))).close()
            return
        except OSError as error:
            hopeless = isinstance(error, socket.gaierror) or error.errno in _HOPELESS
            if hopeless or deadline - time.monotonic() < _PAUSE:
                raise RendezvousError(
                    f"The rendezvous at {host}:{port} cannot be reached: {error}. Check MASTER_ADDR and MASTER_PORT "
                    "(or torchrun's --rdzv-endpoint), that rank 0 is running there, and the network between the hosts."
                ) from error
            if not told:
                told = True
                _log.warning("Nothing answers at the rendezvous %s:%d yet (%s); waiting for it.", host, port, error)
            time.sleep(_PAUSE)
