"""Streams and events, with `torch.cuda`'s conventions."""

import threading
import time

import pytest
import torch


def test_streams_have_an_identity() -> None:
    one, other = torch.neuron.Stream(), torch.neuron.Stream()
    assert one != other
    assert hash(one) != hash(other) or one.stream_id != other.stream_id
    assert isinstance(one, torch.Stream)
    assert one.device == torch.device("neuron:0")
    same = torch.neuron.Stream(stream_id=one.stream_id, device_index=one.device_index, device_type=one.device_type)
    assert same == one
    assert repr(one) == f"<torch.neuron.Stream device=neuron:0 id={one.stream_id}>"


@pytest.mark.parametrize("core", [1, "neuron:1", torch.device("neuron:1")])
def test_a_stream_belongs_to_a_core(core: int | str | torch.device) -> None:
    assert torch.neuron.Stream(core).device.index == 1
    assert torch.neuron.Stream(core, priority=-1).device.index == 1
    assert torch.neuron.default_stream(core).device.index == torch.neuron.current_stream(core).device.index == 1


def test_work_goes_to_the_current_stream() -> None:
    stream = torch.neuron.Stream(1)
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    with torch.neuron.stream(stream):
        assert torch.neuron.current_stream() == stream
        assert torch.neuron.current_device() == 1
        assert torch.empty(1, device="neuron").device.index == 1
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == stream
    assert torch.neuron.current_device() == 0
    assert torch.neuron.current_stream(1) == torch.neuron.default_stream(1)
    with stream:
        assert torch.neuron.current_stream() == stream
    assert torch.neuron.current_device() == 0


def test_set_stream() -> None:
    stream = torch.neuron.Stream()
    torch.neuron.set_stream(stream)
    assert torch.neuron.current_stream() == stream
    torch.neuron.set_stream(torch.neuron.default_stream())
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_each_thread_has_its_own_current_stream() -> None:
    stream = torch.neuron.Stream()
    seen: list[bool] = []
    with torch.neuron.stream(stream):
        thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_stream() == stream))
        thread.start()
        thread.join()
    assert seen == [False]


def test_events_order_and_measure() -> None:
    stream = torch.neuron.Stream()
    start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    start.record()
    time.sleep(0.02)
    end.record(stream)
    stream.wait_event(start)
    start.wait(stream)
    stream.wait_stream(torch.neuron.current_stream())
    end.synchronize()
    stream.synchronize()
    assert start.query()
    assert stream.query()
    assert start.elapsed_time(end) >= 20
    assert end.elapsed_time(start) < 0


def test_a_stream_records_events() -> None:
    stream = torch.neuron.Stream(1)
    event = stream.record_event()
    assert isinstance(event, torch.neuron.Event)
    assert event.device == torch.device("neuron:1")
    own = torch.neuron.Event(enable_timing=True)
    assert stream.record_event(own) is own
    assert own.device == torch.device("neuron:1")


def test_events_are_torch_s_events() -> None:
    assert isinstance(torch.neuron.Event(), torch.Event)
    assert isinstance(torch.neuron.Event(), torch.neuron.Event)
    assert isinstance(torch.Event("neuron"), torch.neuron.Event)
    assert not isinstance(torch.Event("cpu"), torch.neuron.Event)
    assert not isinstance(1, torch.neuron.Event)
    generic = torch.Event("neuron", enable_timing=True)
    own = torch.neuron.Event(enable_timing=True)
    generic.record()
    own.record()
    assert generic.elapsed_time(own) >= 0


def test_an_event_that_was_not_recorded_is_done() -> None:
    event = torch.neuron.Event()
    assert event.query()
    event.synchronize()
    event.wait()


def test_wrong_uses() -> None:
    timed = torch.neuron.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(torch.neuron.Event(enable_timing=True))
    timed.record()
    untimed = torch.neuron.Event()
    untimed.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(untimed)
    with pytest.raises(RuntimeError, match=r"neuron:0 cannot be recorded on a stream of neuron:1.*one event per core"):
        timed.record(torch.neuron.Stream(1))
    with pytest.raises(ValueError, match="interprocess=False"):
        torch.neuron.Event(interprocess=True)


def test_record_stream() -> None:
    tensor = torch.ones(100, device="neuron")
    stream = torch.neuron.Stream()
    with torch.neuron.stream(stream):
        doubled = tensor * 2
    tensor.record_stream(stream)
    del tensor
    assert doubled.eq(2).all()
    torch.empty(0, device="neuron").record_stream(stream)
    with pytest.raises(RuntimeError, match="a stream of device neuron"):
        doubled.record_stream(torch.Stream(device="cpu"))


def test_synchronize() -> None:
    torch.neuron.synchronize()
    torch.neuron.synchronize(2)
    torch.neuron.synchronize("neuron:3")
