"""The NEFF container: a 1024-byte little-endian header, then a tar archive, gzip-compressed by default.

The header's layout is the documented one. Its ``neff_build_version`` says what made the file. Those made by this
project begin with ``torch-neuronx/`` and name the runtime that they are for; any other text is the chip's compiler's.
The same content gives the same bytes wherever zlib is the same.
"""

import hashlib
import io
import struct
import tarfile
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from torch_neuronx.errors import NeffFormatError, NeffMismatchError

HEADER_SIZE = 1024
_HEADER = struct.Struct("<5Q128sI32s16s256sI64sQI468s")
_UUID_AT = slice(204, 220)
_PKG_VERSION = 2
_NEFF_VERSION = (0, 4)
_OURS = "torch-neuronx/"

CHIP = "nrt"
"""The runtime of a NEFF that the chip's compiler made."""


@dataclass(frozen=True, slots=True)
class NeffHeader:
    """The header, field by field; text fields without their zero padding."""

    pkg_version: int
    header_size: int
    data_size: int
    """Bytes after the header."""
    neff_version: tuple[int, int]
    build_version: str
    """What made the file; at most 128 bytes of UTF-8."""
    num_tpb: int
    """Physical cores."""
    hash: bytes
    """SHA-256 of the bytes after the header (16 bytes of MD5 and zeros where ``pkg_version`` is below 2)."""
    uuid: bytes
    """For files of this project a digest of everything else, so that every altered byte shows."""
    name: str
    """At most 256 bytes of UTF-8."""
    requested_tpb_count: int
    tpb_per_node: bytes
    feature_bits: int
    lnc_size: int
    """Physical cores per logical core."""

    @property
    def made_for(self) -> str:
        """Name of the runtime that can load the file."""
        return self.build_version.split("/")[1] if self.build_version.startswith(_OURS) else CHIP


@dataclass(frozen=True, slots=True)
class Neff:
    """A whole NEFF: its header and its files by relative path."""

    header: NeffHeader
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a NEFF may unpack to."""

    files: int = 100_000
    nbytes: int = 16 * 2**30


DEFAULT_LIMITS = Limits()


def pack(files: Mapping[str, bytes], *, name: str, made_for: str, version: str, cores: int = 1, lnc: int = 1) -> bytes:
    """Return the bytes of a NEFF for the runtime ``made_for``, made by ``version`` of its compiler.

    ``cores`` counts physical cores. Raises :class:`NeffFormatError` for a name that does not fit its field or a file
    path that leaves the archive.
    """
    if not made_for or "/" in made_for:
        raise NeffFormatError(f"{made_for!r} is no runtime's name. Use a name without a slash.")
    if not 1 <= cores <= 255:
        raise NeffFormatError(f"A NEFF for {cores} physical cores cannot be written. Use 1 to 255.")
    data = _compress(_tar(files))
    header = NeffHeader(
        pkg_version=_PKG_VERSION,
        header_size=HEADER_SIZE,
        data_size=len(data),
        neff_version=_NEFF_VERSION,
        build_version=f"{_OURS}{made_for}/{version}",
        num_tpb=cores,
        hash=hashlib.sha256(data).digest(),
        uuid=bytes(16),
        name=name,
        requested_tpb_count=cores,
        tpb_per_node=bytes([cores]).ljust(64, b"\0"),
        feature_bits=0,
        lnc_size=lnc,
    )
    return _header_bytes(replace(header, uuid=_content_uuid(_header_bytes(header)))) + data


def read_header(data: bytes) -> NeffHeader:
    """Return the header of a NEFF, from its first 1024 bytes.

    Raises :class:`NeffFormatError` if it is none. Checks no hash: :func:`unpack` does.
    """
    if len(data) < HEADER_SIZE:
        raise NeffFormatError(f"A NEFF has a header of {HEADER_SIZE} bytes, and there are only {len(data)} bytes.")
    (
        pkg_version, header_size, data_size, major, minor, build_version, num_tpb, digest, uid, name,
        requested, per_node, features, lnc, _,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    if header_size != HEADER_SIZE:
        raise NeffFormatError(f"This is no NEFF: its header says it has {header_size} bytes, not {HEADER_SIZE}.")
    return NeffHeader(
        pkg_version, header_size, data_size, (major, minor), _text(build_version, "build version"), num_tpb, digest,
        uid, _text(name, "name"), requested, per_node, features, lnc,
    )  # fmt: skip


def check_made_for(header: NeffHeader, runtime: str) -> None:
    """Raise :class:`NeffMismatchError` unless the NEFF was made for ``runtime``."""
    if header.made_for != runtime:
        raise NeffMismatchError(
            f"The NEFF {header.name!r} was made for the runtime {header.made_for!r} (by {header.build_version!r}), and "
            f"this is the runtime {runtime!r}. Compile the program again for this runtime."
        )


def unpack(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Neff:
    """Read a whole NEFF.

    Raises :class:`NeffFormatError` if it is truncated, altered, larger than ``limits``, or holds anything but regular
    files with relative paths.
    """
    header = read_header(data)
    body = data[HEADER_SIZE:]
    if len(body) != header.data_size:
        raise NeffFormatError(
            f"The NEFF should have {header.data_size} bytes after its header and has {len(body)}: it is truncated, or "
            "something was appended."
        )
    digest = hashlib.sha256 if header.pkg_version >= _PKG_VERSION else hashlib.md5
    if digest(body).digest().ljust(32, b"\0") != header.hash:
        raise NeffFormatError("The NEFF's content does not match the hash in its header: it was altered.")
    # A version-8 UUID is a digest of the rest, and only this project writes one.
    ours = header.build_version.startswith(_OURS) or uuid.UUID(bytes=header.uuid).version == 8
    if ours and _content_uuid(data[:HEADER_SIZE]) != header.uuid:
        raise NeffFormatError("The NEFF's header does not match its UUID: it was altered.")
    return Neff(header, MappingProxyType(_untar(_decompress(body, limits.nbytes), limits)))


def _header_bytes(header: NeffHeader) -> bytes:
    return _HEADER.pack(
        header.pkg_version, header.header_size, header.data_size, *header.neff_version,
        _field(header.build_version, 128, "build version"), header.num_tpb, header.hash, header.uuid,
        _field(header.name, 256, "name"), header.requested_tpb_count, header.tpb_per_node, header.feature_bits,
        header.lnc_size, b"",
    )  # fmt: skip


def _content_uuid(header: bytes) -> bytes:
    """Digest the header, which holds the content's hash, as a version-8 UUID (RFC 9562)."""
    rest = header[: _UUID_AT.start] + bytes(16) + header[_UUID_AT.stop :]
    digest = bytearray(hashlib.sha256(rest).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)


def _field(text: str, size: int, what: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > size or b"\0" in encoded:
        raise NeffFormatError(f"The {what} {text!r} does not fit its field: at most {size} bytes, no NUL.")
    return encoded


def _text(field: bytes, what: str) -> str:
    try:
        return field.partition(b"\0")[0].decode()
    except UnicodeDecodeError:
        raise NeffFormatError(f"This is no NEFF: the {what} in its header is not UTF-8.") from None


def _check_path(path: str) -> str:
    parts = PurePosixPath(path).parts
    plain = parts and "/".join(parts) == path and ".." not in parts and not {"\\", "\0"} & set(path)
    if not plain or not path.isprintable():
        raise NeffFormatError(f"{path!r} is no path for a file in a NEFF. Use a plain relative path with slashes.")
    return path


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(_check_path(path))
            member.size = len(files[path])
            archive.addfile(member, io.BytesIO(files[path]))
    return buffer.getvalue()


def _untar(data: bytes, limits: Limits) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise NeffFormatError(f"The NEFF holds {member.name!r}, which is no regular file.")
                path = _check_path(member.name.removeprefix("./"))
                if path in files:
                    raise NeffFormatError(f"The NEFF holds {path!r} twice.")
                if len(files) == limits.files:
                    raise NeffFormatError(f"The NEFF holds more than {limits.files} files.")
                stream = archive.extractfile(member)
                files[path] = b"" if stream is None else stream.read()
                if len(files[path]) != member.size:
                    raise NeffFormatError(f"The NEFF's archive ends within {path!r}.")
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, NeffFormatError):
            raise
        raise NeffFormatError(f"The NEFF's archive cannot be read: {error}.") from error
    return files


def _compress(data: bytes) -> bytes:
    # zlib's own gzip header has no time in it, and unlike the gzip module's it is the same in every Python.
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush()


def _decompress(data: bytes, limit: int) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data  # the compiler's "fast loading" form is not compressed
    decompressor = zlib.decompressobj(wbits=31)
    try:
        unpacked = decompressor.decompress(data, limit)
    except zlib.error as error:
        raise NeffFormatError(f"The NEFF's archive cannot be decompressed: {error}.") from error
    if decompressor.unconsumed_tail:
        raise NeffFormatError(f"The NEFF unpacks to more than {limit} bytes.")
    if not decompressor.eof or decompressor.unused_data:
        raise NeffFormatError("The NEFF's compressed archive is cut short, or something follows it.")
    return unpacked
