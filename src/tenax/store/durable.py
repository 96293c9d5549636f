"""Writing files so that death at any moment leaves the old content or the new one, never a mixture."""

from __future__ import annotations

import errno
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenax.errors import StoreFailed, UnsuitableStore

PARTIAL = ".partial"  # the suffix of files that are being written; their names start with a dot
_BLOCK_BYTES = 1 << 20


def write_file(path: Path, payload: bytes) -> None:
    """Put content under a name, replacing what was there."""
    with _naming(path):
        partial = _write_partial(path, payload)
        partial.replace(path)
        sync_folder(path.parent)


def create_exclusively(path: Path, payload: bytes) -> None:
    """Put content under a name that must be free, all or nothing; FileExistsError if it is taken.

    A hard link is the one rename of POSIX that refuses to replace.
    """
    with _naming(path):
        partial = _write_partial(path, payload)
        try:
            os.link(partial, path)
        finally:
            partial.unlink()
        sync_folder(path.parent)


def move(source: Path, target: Path) -> None:
    """Rename a file that is already on disk; the caller syncs the folders."""
    with _naming(source):
        source.replace(target)


def remove(path: Path) -> None:
    """Delete a file if it is there."""
    with _naming(path):
        path.unlink(missing_ok=True)


def make_folder(path: Path, below: Path | None = None) -> None:
    """Create a folder and those above it, durably; with `below` only those below that one, which must be there.

    What is away for a moment must not be made anew: it could not come back.
    """
    if path.is_dir():
        return
    if path == below:
        raise StoreFailed(f"{path}: {os.strerror(errno.ENOENT)}: put it back")
    make_folder(path.parent, below)
    with _naming(path):
        try:
            path.mkdir()
        except FileExistsError:
            if not path.is_dir():
                raise NotADirectoryError(20, "a file is in the way", str(path)) from None
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    with _naming(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(descriptor: int, payload: bytes) -> None:
    """Write every byte and wait until it is on disk."""
    view = memoryview(payload)
    while view:  # ends: a regular file takes at least one byte or raises
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def read_bytes(path: Path, offset: int = 0, size: int = -1) -> bytes:
    """The content of a file, or so many bytes of it."""
    with _naming(path), path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def checksum(path: Path, offset: int, size: int) -> int:
    """The CRC-32 of so many bytes of a file, read in blocks."""
    crc = 0
    with _naming(path), path.open("rb") as file:
        file.seek(offset)
        while block := file.read(min(size, _BLOCK_BYTES)):
            crc = zlib.crc32(block, crc)
            size -= len(block)
    return crc


def names(folder: Path) -> list[str]:
    """The names in a folder, sorted; none if there is no folder."""
    with _naming(folder):
        try:
            return sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return []


def exists(path: Path) -> bool:
    """Whether there is such a file."""
    with _naming(path):
        return path.exists()


def check_exclusive_create(folder: Path) -> None:
    """Refuse a file system on which two drivers could both believe that they are the only one."""
    probe = folder / f".probe-{secrets.token_hex(8)}"
    try:
        create_exclusively(probe, b"")
        try:
            create_exclusively(probe, b"")
        except FileExistsError:
            return
    except StoreFailed as error:
        raise UnsuitableStore(
            f"{folder}: a store needs a file system with exclusive create (hard links), found none "
            f"({error.__cause__}): use a local disk or NFS"
        ) from error
    finally:
        probe.unlink(missing_ok=True)
    raise UnsuitableStore(
        f"{folder}: a store needs a file system with exclusive create, found one that replaces: use a local disk or NFS"
    )


def _write_partial(path: Path, payload: bytes) -> Path:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        write_all(descriptor, payload)
    finally:
        os.close(descriptor)
    return partial


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn what the operating system says into one line; that a name is taken is an answer, not a failure."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreFailed(f"{path}: {error.strerror or error}: check the disk and its permissions") from error
