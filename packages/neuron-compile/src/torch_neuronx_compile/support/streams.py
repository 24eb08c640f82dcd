"""Calls on streams and events, which order and await the work of a device: what a program is, is ordered as a whole."""

NAMESPACE = "streams"
"""The operators that Dynamo puts into a graph for them."""

REASON = "it orders or awaits the work of a device, and a NEFF is handed to the device as one piece of work"

SPELLINGS = {
    "fork": "torch.Stream.__enter__",
    "join": "torch.Stream.__exit__",
    "record_event": "torch.Event.record",
    "record_stream": "torch.Tensor.record_stream",
    "synchronize_device": "torch.accelerator.synchronize",
    "synchronize_event": "torch.Event.synchronize",
    "synchronize_stream": "torch.Stream.synchronize",
    "wait_event": "torch.Event.wait",
    "wait_stream": "torch.Stream.wait_stream",
}
"""By the operator's name, what users call."""
