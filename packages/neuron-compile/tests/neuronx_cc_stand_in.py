#!/usr/bin/env python3
"""A stand-in for the command neuronx-cc: it holds its caller to the documented command line and writes a NEFF.

It checks each argument and that the input is a serialized HloModuleProto, writes down how it was called into the file
that NEURONX_CC_STAND_IN_LOG names, and fails in the way that NEURONX_CC_STAND_IN_FAIL names.
"""

import io
import json
import os
import struct
import sys
import tarfile
import time
import uuid
from pathlib import Path

VERSION = "2.28.7631.0+abcdef"
CHOICES = {
    "--framework": {"XLA"},
    "--target": {"trn1", "trn1n", "inf2", "trn2", "trn3"},
    "--lnc": {"1", "2"},
    "--optlevel": {"1", "2", "3"},
    "--model-type": {"generic", "transformer", "unet-inference"},
    "--auto-cast": {"none", "matmult", "all"},
    "--verbose": {"debug", "info", "warning", "error", "critical"},
}
SWITCHES = {"--enable-fast-context-switch", "--enable-fast-loading-neuron-binaries"}


def refuse(message: str) -> None:
    print(f"[NCC_EARG002] {message}", file=sys.stderr)
    sys.exit(70)


def parse(arguments: list[str]) -> dict[str, str]:
    if not arguments or arguments[0] != "compile":
        refuse(f"no such command: {arguments[:1]}")
    found: dict[str, str] = {}
    rest = arguments[1:]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            if "input" in found:
                refuse(f"a second input: {word}")
            found["input"] = word
        elif name in SWITCHES:
            found[name] = ""
        elif name in CHOICES or name == "--output":
            found[name] = value if equals else rest.pop(0)
            if name in CHOICES and found[name] not in CHOICES[name]:
                refuse(f"{name} does not take {found[name]}")
        else:
            refuse(f"unknown flag: {word}")
    for name in ("input", "--framework", "--target", "--output"):
        if name not in found:
            refuse(f"missing: {name}")
    return found


def names_of_computations(data: bytes) -> list[str]:
    """Walk the protobuf wire format: field 1 is the module's name, field 3 a computation whose field 1 is its name."""

    def fields(data: bytes) -> list[tuple[int, bytes]]:
        def varint(at: int) -> tuple[int, int]:
            value = shift = 0
            while True:
                byte = data[at]
                value |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if not byte & 0x80:
                    return value, at

        at, found = 0, []
        while at < len(data):
            tag, at = varint(at)
            match tag & 7:
                case 0:
                    _, at = varint(at)
                case 1:
                    at += 8
                case 2:
                    size, at = varint(at)
                    found.append((tag >> 3, data[at : at + size]))
                    at += size
                case 5:
                    at += 4
                case _:
                    refuse("the input is no protobuf")
        return found

    module = fields(data)
    if not any(number == 1 for number, _ in module):
        refuse("the input is no HloModuleProto")
    return [dict(fields(body)).get(1, b"").decode() for number, body in module if number == 3]


def container() -> bytes:
    """A NEFF as the chip's compiler labels it: 1024-byte header, then a gzip-compressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("def.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
    data = buffer.getvalue()
    return struct.pack(
        "<5Q128sI32s16s256sI64sQI468s",
        2, 1024, len(data), 0, 4, VERSION.encode(), 2, __import__("hashlib").sha256(data).digest(), uuid.uuid4().bytes,
        b"program", 2, b"\x02", 0, 2, b"",
    ) + data  # fmt: skip


def main() -> None:
    failure = os.environ.get("NEURONX_CC_STAND_IN_FAIL", "")
    if sys.argv[1:] == ["--version"]:
        if failure == "version":
            sys.exit("Traceback: no module named neuronxcc")
        print(
            f"NeuronX Compiler version {VERSION}\n\nPython version 3.12.3\nHWM version 2.28.0.0\nNumPy version 1.26.4"
        )
        return
    found = parse(sys.argv[1:])
    computations = names_of_computations(Path(found["input"]).read_bytes())
    if not computations:
        refuse("the input has no computation")
    with open(os.environ["NEURONX_CC_STAND_IN_LOG"], "a") as log:
        log.write(json.dumps({**found, "cwd": os.getcwd(), "argv": sys.argv[1:]}) + "\n")
    match failure:
        case "error":
            print("ERROR: [NCC_EVRF001] operator sort is not supported", file=sys.stderr)
            print("ERROR: [NCC_EOOM002] too large", file=sys.stderr)
            sys.exit(70)
        case "hang":
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "1000"])
            time.sleep(1000)
        case "kill":
            os.kill(os.getpid(), 9)
        case "nothing":
            return
        case "junk":
            Path(found["--output"]).write_bytes(b"junk")
            return
    Path(found["--output"]).write_bytes(container())


if __name__ == "__main__":
    main()
