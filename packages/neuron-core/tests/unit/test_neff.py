"""The NEFF container: round trips, and refusal of anything altered, cut or malicious."""

import dataclasses
import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_neuronx import neff
from torch_neuronx.errors import NeffFormatError, NeffMismatchError

FILES = {"def.json": b"{}", "sg00/weights.bin": bytes(range(256)) * 4, "sg00/empty": b""}


def pack(files: dict[str, bytes] = FILES) -> bytes:
    return neff.pack(files, name="model_0_forward_0", made_for="emulator", version="1.2", cores=2, lnc=2)


def foreign(body: bytes, pkg_version: int = 2, digest: Callable[[bytes], bytes] | None = None) -> bytes:
    """Return a NEFF as the chip's compiler would write it: own build version, a random UUID, ``body`` after it."""
    digest = digest or (lambda data: hashlib.sha256(data).digest())
    uid = bytearray(os.urandom(16))
    uid[6] = uid[6] & 0x0F | 0x40
    header = struct.pack(
        "<5Q128sI32s16s256sI64sQI468s",
        pkg_version, 1024, len(body), 0, 4, b"2.28.7631.0", 1, digest(body), bytes(uid), b"chip", 1, b"\1", 0, 1, b"",
    )  # fmt: skip
    return header + body


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def test_header_fields_are_at_the_documented_offsets() -> None:
    data = pack()
    assert struct.unpack_from("<5Q", data) == (2, 1024, len(data) - 1024, 0, 4)
    assert data[40:168].rstrip(b"\0") == b"torch-neuronx/emulator/1.2"
    assert struct.unpack_from("<I", data, 168) == (2,)
    assert data[172:204] == hashlib.sha256(data[1024:]).digest()
    assert any(data[204:220])
    assert data[220:476].rstrip(b"\0") == b"model_0_forward_0"
    assert struct.unpack_from("<I", data, 476) == (2,)
    assert data[480:544] == b"\2".ljust(64, b"\0")
    assert struct.unpack_from("<QI", data, 544) == (0, 2)
    assert not any(data[556:1024])


def test_the_body_is_a_plain_gzipped_tar() -> None:
    with tarfile.open(fileobj=io.BytesIO(pack()[1024:]), mode="r:gz") as archive:
        assert archive.getnames() == sorted(FILES)
        member = archive.getmember("def.json")
        assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)


paths = st.lists(st.text("abcXYZ019._-ü", min_size=1, max_size=60), min_size=1, max_size=4).map("/".join)
usable = paths.filter(lambda path: not {".", ".."} & set(path.split("/")))


@given(st.dictionaries(usable, st.binary(max_size=2000), max_size=6), st.text("abc_0", max_size=256))
def test_round_trip(files: dict[str, bytes], name: str) -> None:
    # A path cannot be a file and a folder at once.
    files = {path: data for path, data in files.items() if not any(p.startswith(path + "/") for p in files)}
    data = neff.pack(files, name=name, made_for="emulator", version="9", cores=1, lnc=1)
    unpacked = neff.unpack(data)
    assert dict(unpacked.files) == files
    assert unpacked.header == neff.read_header(data)
    assert (unpacked.header.name, unpacked.header.made_for) == (name, "emulator")


def test_same_content_same_bytes() -> None:
    assert pack() == pack(dict(reversed(FILES.items())))
    assert pack() != pack({**FILES, "def.json": b"{ }"})


@given(st.integers(0, len(pack()) - 1), st.integers(1, 255))
def test_any_altered_byte_is_found(position: int, mask: int) -> None:
    data = bytearray(pack())
    data[position] ^= mask
    with pytest.raises(NeffFormatError):
        neff.unpack(bytes(data))


@given(st.integers(0, len(pack()) - 1))
def test_any_truncation_is_found(length: int) -> None:
    with pytest.raises(NeffFormatError):
        neff.unpack(pack()[:length])


def test_something_appended_is_found() -> None:
    with pytest.raises(NeffFormatError, match="appended"):
        neff.unpack(pack() + b"\0")


@given(st.binary(max_size=3000))
def test_noise_is_no_neff(noise: bytes) -> None:
    with pytest.raises(NeffFormatError):
        neff.unpack(noise)


@given(st.binary(max_size=3000))
def test_a_noisy_body_under_a_right_hash(noise: bytes) -> None:
    for body in (noise, gzip.compress(noise), b"\x1f\x8b" + noise):
        try:
            files = neff.unpack(foreign(body)).files
        except NeffFormatError:
            continue
        assert not files  # an archive of zeros is an empty one


class TestForeignNeffs:
    def test_one_of_the_chips_compiler_is_read(self) -> None:
        for body in (
            gzip.compress(tar((tarfile.TarInfo("./def.json"), b"{}"))),
            tar((tarfile.TarInfo("def.json"), b"{}")),
        ):
            unpacked = neff.unpack(foreign(body))
            assert dict(unpacked.files) == {"def.json": b"{}"}
            assert unpacked.header.made_for == "nrt"
            assert unpacked.header.build_version == "2.28.7631.0"

    def test_an_older_one_has_an_md5(self) -> None:
        body = tar((tarfile.TarInfo("def.json"), b"{}"))
        data = foreign(body, 1, lambda data: hashlib.md5(data).digest())
        assert neff.unpack(data).files
        with pytest.raises(NeffFormatError, match="hash"):
            neff.unpack(data[:-1] + b"x")

    def test_directories_are_passed_over(self) -> None:
        folder = tarfile.TarInfo("sg00")
        folder.type = tarfile.DIRTYPE
        assert dict(neff.unpack(foreign(tar((folder, b""), (tarfile.TarInfo("sg00/a"), b"x")))).files) == {
            "sg00/a": b"x"
        }

    @pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "a/..", "..", "a\\b"])
    def test_paths_that_leave_the_archive(self, name: str) -> None:
        with pytest.raises(NeffFormatError, match="no path for a file"):
            neff.unpack(foreign(tar((tarfile.TarInfo(name), b""))))

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
    def test_anything_but_regular_files(self, kind: bytes) -> None:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "target"
        with pytest.raises(NeffFormatError, match="'link', which is no regular file"):
            neff.unpack(foreign(tar((member, b""))))

    def test_one_path_twice(self) -> None:
        with pytest.raises(NeffFormatError, match="twice"):
            neff.unpack(foreign(tar((tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a"), b"2"))))

    def test_an_archive_cut_within_a_file(self) -> None:
        with pytest.raises(NeffFormatError):
            neff.unpack(foreign(tar((tarfile.TarInfo("a"), b"x" * 5000))[:1500]))

    def test_a_compressed_archive_cut_short(self) -> None:
        with pytest.raises(NeffFormatError, match="cut short"):
            neff.unpack(foreign(gzip.compress(tar((tarfile.TarInfo("a"), os.urandom(5000))))[:-20]))


def test_limits() -> None:
    with pytest.raises(NeffFormatError, match="more than 2 files"):
        neff.unpack(pack(), neff.Limits(files=2))
    bomb = pack({"zeros": bytes(10**7)})
    assert len(bomb) < 10**5
    with pytest.raises(NeffFormatError, match="more than 1000000 bytes"):
        neff.unpack(bomb, neff.Limits(nbytes=10**6))


def test_what_cannot_be_written() -> None:
    for path in ("", "/a", "../a", "a//b", "./a", "a/", "a\nb", "\ud800"):
        with pytest.raises(NeffFormatError, match="no path for a file"):
            pack({path: b""})
    with pytest.raises(NeffFormatError, match="name"):
        neff.pack({}, name="x" * 257, made_for="emulator", version="1")
    with pytest.raises(NeffFormatError, match="runtime's name"):
        neff.pack({}, name="x", made_for="a/b", version="1")
    with pytest.raises(NeffFormatError, match="physical cores"):
        neff.pack({}, name="x", made_for="emulator", version="1", cores=0)


def test_each_runtime_refuses_the_others() -> None:
    ours, chips = neff.read_header(pack()), neff.read_header(foreign(b""))
    neff.check_made_for(ours, "emulator")
    neff.check_made_for(chips, "nrt")
    with pytest.raises(NeffMismatchError, match=r"made for the runtime 'emulator'.*this is the runtime 'nrt'"):
        neff.check_made_for(ours, "nrt")
    with pytest.raises(NeffMismatchError, match=r"made for the runtime 'nrt' \(by '2.28.7631.0'\)"):
        neff.check_made_for(chips, "emulator")


def test_values_are_frozen() -> None:
    unpacked = neff.unpack(pack())
    with pytest.raises(dataclasses.FrozenInstanceError):
        unpacked.header.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        unpacked.files["a"] = b""  # type: ignore[index]
