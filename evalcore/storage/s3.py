"""An object store in a bucket of S3 or of a server compatible with it.

boto3 is imported when a store is made: that takes a third of a second.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Required, TypedDict, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from evalcore.errors import ObjectNotFoundError, SettingsError, StoreError
from evalcore.network import proxy_for
from evalcore.storage import object_store
from evalcore.storage.object_store import ObjectInfo, StoredObject, check_key
from evalcore.storage.s3_delta import delta_options
from evalcore.storage.s3_faults import (
    NotImplementedByServerError,
    S3Place,
    is_unmet,
    may_pass,
    status_of,
)
from evalcore.storage.s3_pieces import is_large, put_pieces, read_body
from evalcore.storage.s3_session import new_session
from evalcore.storage.s3_settings import AddressingStyle, S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef

T = TypeVar("T")

_CONFLICT_ATTEMPTS = 10
_FIRST_CONFLICT_WAIT_S = 0.1
# Six attempts outlast a server that is away for five seconds.
_FIRST_FAULT_WAIT_S = 0.6
_LONGEST_WAIT_S = 5.0
_WRITE_ID = "evalcore-write"  # metadata: which call wrote the object


class _Condition(TypedDict, total=False):
    IfMatch: str
    IfNoneMatch: str


class _PageRequest(TypedDict, total=False):
    Bucket: Required[str]
    Prefix: str
    Delimiter: str
    ContinuationToken: str


class S3Store:
    """An `ObjectStore` below `prefix` in a bucket, which must exist.

    Requests that fail on the way or with 5xx are repeated. A conditional write whose answer was
    lost is settled by reading back: each write carries an id of its own, and where the server keeps
    no metadata the bytes decide. (One case stays open: the own swap was lost sight of and its
    object has been replaced since. None then means "not yours any more".) Large files are written,
    and large objects read, in pieces, four at once. Bytes of up to 5 GiB: S3's limit for a request.

    The ETag is the server's.
    """

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        prefix = prefix.strip("/")
        object_store.check_prefix(prefix)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._settings = settings
        self._client = _make_client(bucket, settings)
        self._server = S3Place(self._client.meta.endpoint_url, bucket, self.url)

    def __reduce__(self) -> tuple[type[S3Store], tuple[str, str, S3Settings]]:
        return S3Store, (self._bucket, self._prefix, self._settings)

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`; endpoint and credentials are the environment's."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def is_remote(self) -> bool:
        """True."""
        return True

    def get(self, key: str) -> StoredObject:
        """Return the object at `key`."""
        name = self._name(key)

        def get() -> StoredObject:
            answer = self._client.get_object(Bucket=self._bucket, Key=name)
            data = read_body(
                self._client,
                answer,
                (self._bucket, name),
                self._settings.piece_bytes,
                lambda request: self._repeated(key, request),
            )
            return StoredObject(data, _unquoted(answer["ETag"]))

        return self._repeated(key, get)

    def exists(self, key: str) -> bool:
        """Whether there is an object at `key`: one HEAD request, a twelfth of a listing's price."""
        name = self._name(key)
        try:
            self._repeated(key, lambda: self._client.head_object(Bucket=self._bucket, Key=name))
        except ObjectNotFoundError:
            return False
        return True

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        """Write the object, replacing any; return its ETag."""
        name = self._name(key)
        body = data if isinstance(data, bytes) else b"".join(data)
        answer = self._repeated(
            key,
            lambda: self._client.put_object(
                Bucket=self._bucket, Key=name, Body=body, **self._settings.written
            ),
        )
        return _unquoted(answer["ETag"])

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        """Write the object (bytes, or a file's content) unless one exists; None if one does."""
        if isinstance(data, bytes):
            return self._put_conditionally(key, data, {"IfNoneMatch": "*"})
        try:
            with data.open("rb") as file:
                return self._put_conditionally(key, file, {"IfNoneMatch": "*"})
        except OSError as error:
            reason = error.strerror or error
            raise StoreError(f"{key}: cannot read {data} to store it: {reason}") from error

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object if its ETag is still `etag`; None if it is not (or it is gone)."""
        return self._put_conditionally(key, data, {"IfMatch": f'"{etag}"'})

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, in byte order of their keys."""
        object_store.check_prefix(prefix)
        return self._walk(self._prefix + prefix)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly below `prefix`, in byte order."""
        object_store.check_folder(prefix)
        start = self._prefix + prefix
        folders = (folder for page in self._pages(start) for folder in _folders(page))
        yield from sorted(folder[len(start) : -1] for folder in folders)

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        name = self._name(key)
        with suppress(ObjectNotFoundError):
            self._repeated(key, lambda: self._client.delete_object(Bucket=self._bucket, Key=name))

    def presign(self, key: str, *, expires_s: int = 3600) -> str:
        """Return a URL that reads the object without credentials for `expires_s` seconds."""
        target = {"Bucket": self._bucket, "Key": self._name(key)}
        with self._explained(key):
            return self._client.generate_presigned_url("get_object", target, ExpiresIn=expires_s)

    def local_path(self, key: str) -> None:
        """Return None: there are no files."""
        check_key(key)

    def delta_options(self) -> dict[str, str]:
        """Return what reaches this bucket through deltalake, credentials included: never shown."""
        return delta_options(self._settings, self._client.meta.region_name)

    def probe_conditional_writes(self) -> bool:
        """Try both conditions, met and not met, on an object that is deleted again.

        Shows whether the server looks at the conditions, not whether it keeps them in a race.
        """
        key = f".probe/{uuid4().hex}"
        try:
            created = self.put_if_absent(key, b"1")
            return (
                created is not None
                and self.put_if_absent(key, b"2") is None
                and self.compare_and_swap(key, b"3", "0" * len(created)) is None
                and self.compare_and_swap(key, b"4", created) is not None
            )
        except NotImplementedByServerError:
            return False
        finally:
            self.delete(key)

    def _name(self, key: str) -> str:
        check_key(key)
        check_key(self._prefix + key)
        return self._prefix + key

    def _put_conditionally(
        self, key: str, body: bytes | BinaryIO, condition: _Condition
    ) -> str | None:
        """Repeat the write until it is decided: its ETag, or None if the condition is not met."""
        from botocore.exceptions import BotoCoreError, ClientError

        name, write_id = self._name(key), uuid4().hex
        faults = conflicts = 0
        with self._explained(key):
            while True:
                try:
                    return self._put_once(name, body, write_id, condition)
                except (ClientError, BotoCoreError) as error:
                    if is_unmet(error, swapping="IfMatch" in condition):
                        # An attempt before may have been taken although its answer was lost.
                        repeated = faults or conflicts
                        return self._etag_of_write(key, write_id, body) if repeated else None
                    if isinstance(error, ClientError) and status_of(error) == 409:
                        conflicts += 1
                        if conflicts < _CONFLICT_ATTEMPTS:
                            _wait(_FIRST_CONFLICT_WAIT_S, conflicts)
                            continue
                        break
                    if not may_pass(error):
                        raise
                    faults += 1
                    if faults < self._settings.max_attempts:
                        _wait(_FIRST_FAULT_WAIT_S, faults)
                        continue
                    etag = self._etag_of_write(key, write_id, body)
                    if etag is None:
                        raise
                    return etag
        raise StoreError(
            f"{key}: {self._server.where} answered {_CONFLICT_ATTEMPTS} times that "
            "another client is writing this object (409); try again later"
        )

    def _put_once(
        self, name: str, body: bytes | BinaryIO, write_id: str, condition: _Condition
    ) -> str:
        if not isinstance(body, bytes):
            body.seek(0)
            path, piece_bytes = Path(body.name), self._settings.piece_bytes
            if "IfNoneMatch" in condition and is_large(path, piece_bytes):
                repeated = partial(self._repeated, name)
                metadata = {_WRITE_ID: write_id}
                target = self._bucket, name
                return _unquoted(
                    put_pieces(
                        self._client,
                        path,
                        target,
                        piece_bytes,
                        repeated,
                        metadata,
                        self._settings.written,
                    )
                )
        answer = self._client.put_object(
            Bucket=self._bucket,
            Key=name,
            Body=body,
            Metadata={_WRITE_ID: write_id},
            **self._settings.written,
            **condition,
        )
        return _unquoted(answer["ETag"])

    def _etag_of_write(self, key: str, write_id: str, body: bytes | BinaryIO) -> str | None:
        """Return the object's ETag if it is what the write of that id left there."""
        name = self._name(key)
        try:
            answer = self._repeated(
                key, lambda: self._client.head_object(Bucket=self._bucket, Key=name)
            )
            written_by = answer["Metadata"].get(_WRITE_ID)
            if written_by is not None:
                return _unquoted(answer["ETag"]) if written_by == write_id else None
            stored = self.get(key)
        except ObjectNotFoundError:
            return None
        if not isinstance(body, bytes):
            body.seek(0)
            body = body.read()
        return stored.etag if stored.data == body else None

    def _repeated(self, key: str, request: Callable[[], T]) -> T:
        """Return the answer of the first attempt that no passing fault meets."""
        from botocore.exceptions import BotoCoreError, ClientError

        attempt = 0
        with self._explained(key):
            while True:
                try:
                    return request()
                except (ClientError, BotoCoreError) as error:
                    attempt += 1
                    if attempt >= self._settings.max_attempts or not may_pass(error):
                        raise
                    _wait(_FIRST_FAULT_WAIT_S, attempt)

    def _walk(self, start: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose names start with `start`, folder by folder.

        Not all servers list in byte order across folders, and only one folder is held in memory.
        """
        objects: dict[str, ObjectInfo | None] = {}
        for page in self._pages(start):
            objects.update(dict.fromkeys(_folders(page)))
            for entry in page.get("Contents", []):
                name = entry["Key"]
                if not name.endswith("/"):  # consoles make such objects to show a folder
                    objects[name] = ObjectInfo(
                        name.removeprefix(self._prefix),
                        entry["Size"],
                        _unquoted(entry["ETag"]),
                        entry["LastModified"].astimezone(UTC),
                    )
        for name in sorted(objects):
            info = objects[name]
            if info is None:
                yield from self._walk(name)
            else:
                yield info

    def _pages(self, start: str) -> Iterator[ListObjectsV2OutputTypeDef]:
        shown_key = start.removeprefix(self._prefix) or self.url
        request: _PageRequest = {"Bucket": self._bucket, "Prefix": start, "Delimiter": "/"}
        while True:
            page = self._repeated(shown_key, partial(self._client.list_objects_v2, **request))
            yield page
            if not page.get("IsTruncated"):
                return
            request = {**request, "ContinuationToken": page["NextContinuationToken"]}

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Turn what boto3 raises into a `StoreError` that says what would work."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            raise self._server.explain_answer(key, error) from error
        except BotoCoreError as error:
            raise self._server.explain_failure(key, error) from error


def _make_client(bucket: str, settings: S3Settings) -> S3Client:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    region = settings.region or "us-east-1"
    address = settings.endpoint_url or f"https://{bucket}.s3.{region}.amazonaws.com"
    proxy = proxy_for(address)
    default_style: AddressingStyle = "path" if settings.endpoint_url else "auto"
    config = Config(
        connect_timeout=settings.connect_timeout_s,
        # boto3 would ask a proxy for this machine, too.
        proxies={urlsplit(address).scheme: proxy.url} if proxy else {},
        read_timeout=settings.read_timeout_s,
        # `S3Store` repeats requests itself: boto3 has a quota of repetitions that one bad minute
        # uses up for all calls of a process.
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=settings.pool_size,
        s3={"addressing_style": settings.addressing_style or default_style},
        signature_version="s3v4",
        # Newer checksums are optional for S3 and unknown to many compatible servers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        session = new_session()
        # Requests must be signed for some region, even where none matters.
        no_region = "us-east-1" if settings.endpoint_url else None
        return session.client(
            "s3",
            region_name=settings.region or session.region_name or no_region,
            endpoint_url=settings.endpoint_url,
            config=config,
            # boto3 reads AWS_CA_BUNDLE and REQUESTS_CA_BUNDLE itself.
            verify=None if os.environ.get("AWS_CA_BUNDLE") else os.environ.get("SSL_CERT_FILE"),
        )
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(f"the settings for S3 do not work: {error}") from error


def _wait(first_s: float, attempt: int) -> None:
    """Wait between half and the whole of a time that doubles with each attempt but the first."""
    longest_s = min(_LONGEST_WAIT_S, first_s * 2 ** (attempt - 1))
    time.sleep(longest_s * (1 + secrets.randbelow(1000) / 1000) / 2)


def _folders(page: ListObjectsV2OutputTypeDef) -> Iterator[str]:
    return (entry["Prefix"] for entry in page.get("CommonPrefixes", []))


def _unquoted(etag: str) -> str:
    return etag.strip('"')
