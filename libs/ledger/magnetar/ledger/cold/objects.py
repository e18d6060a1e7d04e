"""Objects at a location, over fsspec. Needs `magnetar-ledger[cold]`.

A location is a URI: file:///dir, s3://bucket/prefix, and others known to an installed fsspec. Credentials
come from the environment (for S3 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and the like),
never from the location. Paths are relative to it, with '/'.

Calls block, are safe from several threads, and are retried a few times by the underlying library where that
makes sense; so an error is final for this call, and `retriable` tells whether a later call may succeed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from magnetar.common.errors import ConfigError, StorageError
from magnetar.ledger.cold.local_objects import copy_durably, write_durably
from magnetar.ledger.cold.object_file import ObjectFile

ATTEMPTS_MAX: Final = 3
"""Attempts of one request to S3, with growing, randomized pauses."""
ROUNDS_MAX: Final = 2
"""Number of times s3fs repeats all attempts (once more around reads, for truncated answers). With these
numbers an unresponsive store is given up after about two minutes.
"""
CONNECT_TIMEOUT_S: Final = 5
READ_TIMEOUT_S: Final = 10
"""Read timeout in seconds without a byte."""

MAKE_DIRECTORY_TRIES: Final = 10
"""Attempts to make a directory that deletions of others remove at the same time."""

_PACKAGES: Final = {
    "s3": "pip install s3fs",
    "gs": "pip install gcsfs",
    "gcs": "pip install gcsfs",
    "abfs": "pip install adlfs",
    "abfss": "pip install adlfs",
    "az": "pip install adlfs",
}
_LOCAL: Final = ("file", "local")
_S3: Final = ("s3", "s3a")
_FLAT: Final = ("gs", "gcs", "abfs", "abfss", "az")
"""Protocols without directories, like S3, where creating one would create a bucket."""
_S3_UPLOAD: Final = {"chunksize": 16 << 20, "max_concurrency": 2}
"""Upload settings for S3: by default a hundred MB and more of a file would be in memory."""
_FINAL: Final = frozenset(
    {errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG, errno.EMSGSIZE, errno.EROFS, errno.ENOTDIR}
)
"""Errors that a retry would meet again."""


class ObjectStoreError(StorageError):
    """The object store refused permanently: permissions, a missing bucket, an invalid name."""


class ObjectStoreUnavailable(ObjectStoreError):
    """The object store did not answer, or not correctly; a later call may succeed."""

    retriable = True


class NoSuchObject(ObjectStoreError):
    """The object does not exist."""


class StoredObject(NamedTuple):
    """One object of a listing."""

    path: str
    """Path below the location."""
    byte_length: int
    modified_ms: int
    """Time of writing, ms since 1970 UTC by the store's clock."""


class ObjectStore:
    """The objects below one location. Create it with `open_store`."""

    def __init__(self, location: str, fs: Any, root: str) -> None:
        """Creates a store. `fs` is an fsspec file system, `root` the location in its form."""
        self.location = location
        self._fs = fs
        self._root = root.rstrip("/")
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        self._local = protocol in _LOCAL
        self._s3 = protocol in _S3
        self._flat = self._s3 or protocol in _FLAT

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Returns bytes of an object, fewer only at its end. Raises NoSuchObject, ObjectStoreError."""
        start = None if length is None and not offset else offset
        end = None if length is None else offset + length
        return bytes(self._call("read", path, lambda full: self._cat(full, start, end)))

    def size(self, path: str) -> int:
        """Returns the size in bytes. Raises NoSuchObject, ObjectStoreError."""
        info = self._call("look up", path, self._fs.info)
        if info.get("type") == "directory":
            raise NoSuchObject(f"{self._named(path)} is a directory, not an object")
        return int(info["size"])

    def exists(self, path: str) -> bool:
        """Return whether the object exists. Raises ObjectStoreError."""
        try:
            self.size(path)
        except NoSuchObject:
            return False
        return True

    def open(self, path: str, size: int | None = None) -> ObjectFile:
        """Opens an object as a seekable binary file; the caller closes it. Raises NoSuchObject.

        With a known `size`, no request is made before the first read. Each read is one request without
        read-ahead, since Parquet requests exact ranges. Reading raises NoSuchObject, ObjectStoreError.
        """
        return ObjectFile(self.read, path, self.size(path) if size is None else size)

    def put_file(self, local: str, path: str) -> None:
        """Copies a local file to an object, complete and durable on return. Raises ObjectStoreError."""
        if self._local:
            self._call("write", path, lambda full: copy_durably(local, full))
        else:
            self._call("write", path, lambda full: self._put_file(local, full))

    def put_bytes(self, path: str, data: bytes) -> None:
        """Writes an object, complete and durable on return. Raises ObjectStoreError."""
        if self._local:
            self._call("write", path, lambda full: write_durably(full, data))
        else:
            self._call("write", path, lambda full: self._put_bytes(full, data))

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yields every object below a directory, unordered, one directory at a time; none if it does not
        exist.

        On S3 a request lists a thousand objects of any directory; elsewhere each directory takes one request.
        Raises ObjectStoreError, also during iteration.
        """
        if self._s3:
            yield from self._list_flat(prefix)
            return
        waiting = [self._full(prefix)]
        while waiting:
            directory = waiting.pop()
            for info in self._entries(directory):
                name = str(info["name"]).rstrip("/")
                if info["type"] == "directory":
                    if name != directory:
                        waiting.append(name)
                elif name != directory:
                    yield StoredObject(
                        name[len(self._root) + 1 :], int(info["size"] or 0), _modified_ms(info)
                    )

    def delete(self, path: str) -> None:
        """Deletes an object; a missing object is not an error. Raises ObjectStoreError."""
        with contextlib.suppress(NoSuchObject):
            self._call("delete", path, self._fs.rm_file)
            if self._local:
                self._prune(path)

    def _list_flat(self, prefix: str) -> Iterator[StoredObject]:
        full = self._full(prefix)
        bucket, key, _ = self._fs.split_path(full)
        asked = {"Bucket": bucket, "Prefix": f"{key}/" if key else ""}
        while True:
            try:
                page = self._fs.call_s3("list_objects_v2", **asked)
            except FileNotFoundError:
                return
            except Exception as error:
                raise _typed(error, f"cannot list {full} at {self.location}") from error
            for info in page.get("Contents", ()):
                path = f"{bucket}/{info['Key']}"[len(self._root) + 1 :]
                if not path.endswith("/"):  # what some tools leave in the place of a directory
                    yield StoredObject(path, int(info["Size"]), _modified_ms({"name": path, **info}))
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def _entries(self, directory: str) -> Sequence[dict[str, Any]]:
        try:
            return tuple(self._fs.ls(directory, detail=True))
        except FileNotFoundError:
            return ()
        except Exception as error:
            raise _typed(error, f"cannot list {directory} at {self.location}") from error

    def _cat(self, full: str, start: int | None, end: int | None) -> bytes:
        try:
            found: bytes = self._fs.cat_file(full, start=start, end=end)
        except OSError as error:
            # S3 returns an error for a range beyond the object's end.
            if start is None or error.errno != errno.EINVAL or start < int(self._fs.info(full)["size"]):
                raise
            return b""
        return found

    def _put_file(self, local: str, full: str) -> None:
        self._make_directory(full)
        self._fs.put_file(local, full, **(_S3_UPLOAD if self._s3 else {}))

    def _put_bytes(self, full: str, data: bytes) -> None:
        self._make_directory(full)
        self._fs.pipe_file(full, data)

    def _make_directory(self, full: str) -> None:
        if self._flat:
            return
        for left in reversed(range(MAKE_DIRECTORY_TRIES)):
            try:
                self._fs.makedirs(full.rpartition("/")[0], exist_ok=True)
                return
            except FileExistsError:  # It was there, and a deletion removed it before the second look.
                if not left:
                    raise

    def _prune(self, path: str) -> None:
        """Removes directories left empty by a deletion, which object stores do not have."""
        parent = os.path.dirname(self._full(path))
        with contextlib.suppress(OSError):
            while len(parent) > len(self._root):
                os.rmdir(parent)
                parent = os.path.dirname(parent)

    def _full(self, path: str) -> str:
        segments = path.strip("/").split("/") if path.strip("/") else []
        if any(segment in ("", ".", "..") for segment in segments):
            raise ObjectStoreError(f"{path!r} is not a path below {self.location}")
        return "/".join((self._root, *segments))

    def _named(self, path: str) -> str:
        return f"{path} at {self.location}"

    def _call(self, what: str, path: str, action: Callable[[str], Any]) -> Any:
        full = self._full(path)
        try:
            return action(full)
        except FileNotFoundError as error:
            if what == "write":
                raise ObjectStoreError(
                    f"cannot write {self._named(path)}: {error}; does the bucket exist?"
                ) from error
            # A HEAD request, which comes first, is answered alike if the bucket is missing.
            hint = "; check the name of the bucket and AWS_ENDPOINT_URL" if self._s3 else ""
            raise NoSuchObject(f"cannot {what} {self._named(path)}: it is not there{hint}") from error
        except Exception as error:  # libraries of object stores have errors of their own
            raise _typed(error, f"cannot {what} {self._named(path)}") from error


def _typed(error: Exception, what: str) -> ObjectStoreError:
    text = f"{what}: {str(error) or type(error).__name__}"
    if isinstance(error, ObjectStoreError):
        return error
    if isinstance(error, FileNotFoundError):
        return NoSuchObject(text)
    if isinstance(error, PermissionError):
        return ObjectStoreError(f"{text}; check the credentials in the environment, and what they may do")
    if isinstance(error, (IsADirectoryError, NotADirectoryError, NotImplementedError, ValueError, TypeError)):
        return ObjectStoreError(text)
    if isinstance(error, OSError) and error.errno in _FINAL:
        return ObjectStoreError(text)
    if type(error).__name__ == "NoCredentialsError":
        return ObjectStoreError(f"{text}; give credentials in the environment (AWS_ACCESS_KEY_ID ...)")
    return ObjectStoreUnavailable(text)


def _modified_ms(info: dict[str, Any]) -> int:
    """Returns the modification time; fsspec file systems differ in its name."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value: Any = info.get(name)
        if isinstance(value, (int, float)):
            return int(value * 1000)
        if hasattr(value, "timestamp"):
            return int(value.timestamp() * 1000)
    raise ObjectStoreError(f"the object store does not say when {info['name']} was written")


def open_store(location: str) -> ObjectStore:
    """Returns the store of a location, without any request. Raises ConfigError with what to do."""
    scheme = urlsplit(location).scheme
    if not scheme:
        raise ConfigError(
            f"the location {location!r} is not a URI such as file:///var/lib/cold or s3://bucket/prefix"
        )
    if "@" in urlsplit(location).netloc:
        raise ConfigError(
            "the location has credentials in it; give them in the environment instead "
            "(for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
    try:
        fsspec = import_module("fsspec")
    except ImportError as error:
        raise ConfigError(
            f"the location {location!r} needs a package that is not installed: "
            "pip install fsspec pyarrow s3fs (in a clone: make setup-spark)"
        ) from error
    try:
        fs, root = fsspec.core.url_to_fs(location, **_options(scheme))
    except (ImportError, ValueError) as error:
        how = _PACKAGES.get(scheme, "use file:// or s3://, or install the package that fsspec asks for")
        raise ConfigError(f"the location {location!r} cannot be used ({error}): {how}") from error
    if scheme in _S3:
        fs.retries = ROUNDS_MAX
    return ObjectStore(location, fs, root)


def _options(scheme: str) -> dict[str, Any]:
    if scheme not in _S3:
        return {}
    return {
        # Read here although the library would as well, because it caches connections by these options.
        "endpoint_url": os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
        "use_listings_cache": False,
        "config_kwargs": {
            "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS_MAX},
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": READ_TIMEOUT_S,
        },
    }
