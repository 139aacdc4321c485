"""An object store in a bucket of S3 or of a server compatible with it.

The only module that knows boto3, and it imports it when a store is made: that takes most of a
second.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias, TypedDict
from urllib.parse import urlsplit
from uuid import uuid4

from evalcore.errors import ObjectNotFoundError, SettingsError, StoreError
from evalcore.storage import object_store
from evalcore.storage.object_store import ObjectInfo, StoredObject, check_key

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef

AddressingStyle: TypeAlias = Literal["path", "virtual", "auto"]

_CONFLICT_ATTEMPTS = 10
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0
_WRITE_ID = "evalcore-write"  # metadata: which call wrote the object


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach the server. Credentials are not here: boto3 finds them where it always does.

    `addressing_style` None is `path` with an endpoint and `auto` without. `max_attempts` counts
    the first one. `pool_size` connections are kept; more threads than that wait for new ones.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    max_attempts: int = 5
    pool_size: int = 32

    def __post_init__(self) -> None:
        if self.endpoint_url is None:
            return
        url = urlsplit(self.endpoint_url)
        if url.username is not None or url.password is not None:
            raise SettingsError(
                "credentials do not belong into the S3 endpoint's URL: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise SettingsError(
                f"{self.endpoint_url!r} is no S3 endpoint: it needs a scheme and a host, "
                "such as http://127.0.0.1:8333"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> S3Settings:
        """Read AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) and AWS_REGION (or AWS_DEFAULT_REGION)."""
        value = environment.get
        return cls(
            endpoint_url=value("AWS_ENDPOINT_URL_S3") or value("AWS_ENDPOINT_URL") or None,
            region=value("AWS_REGION") or value("AWS_DEFAULT_REGION") or None,
        )


class _NotImplementedByServerError(StoreError):
    """The server knows the request and does not support it (501)."""


class _Condition(TypedDict, total=False):
    IfMatch: str
    IfNoneMatch: str


class S3Store:
    """An `ObjectStore` below `prefix` in a bucket, which must exist.

    Requests that fail on the way or with 5xx are repeated. A conditional write whose answer was
    lost is recognised as one's own when it is repeated: each write carries an id of its own. (One
    case stays open: the own swap was lost sight of and somebody has replaced its object since.
    None then means "not yours any more".) Objects of up to 5 GiB, S3's limit for one request.

    The ETag is the server's.
    """

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        prefix = prefix.strip("/")
        object_store.check_prefix(prefix)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._settings = settings
        self._client = _make_client(settings)

    def __reduce__(self) -> tuple[type[S3Store], tuple[str, str, S3Settings]]:
        return S3Store, (self._bucket, self._prefix, self._settings)

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`; endpoint and credentials are the environment's."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def get(self, key: str) -> StoredObject:
        """Return the object at `key`."""
        from botocore.exceptions import HTTPClientError

        name = self._name(key)
        attempts_left = self._settings.max_attempts
        with self._explained(key):
            while True:
                answer = self._client.get_object(Bucket=self._bucket, Key=name)
                attempts_left -= 1
                try:
                    data = answer["Body"].read()
                except HTTPClientError:
                    # boto3 repeats a request only until the body begins.
                    if not attempts_left:
                        raise
                else:
                    return StoredObject(data, _unquoted(answer["ETag"]))
                finally:
                    answer["Body"].close()

    def put(self, key: str, data: bytes) -> str:
        """Write the object, replacing any; return its ETag."""
        name = self._name(key)
        with self._explained(key):
            answer = self._client.put_object(Bucket=self._bucket, Key=name, Body=data)
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
        with suppress(ObjectNotFoundError), self._explained(key):
            self._client.delete_object(Bucket=self._bucket, Key=name)

    def presign(self, key: str, *, expires_s: int = 3600) -> str:
        """Return a URL under which anybody can read the object for `expires_s` seconds."""
        target = {"Bucket": self._bucket, "Key": self._name(key)}
        with self._explained(key):
            return self._client.generate_presigned_url("get_object", target, ExpiresIn=expires_s)

    def local_path(self, key: str) -> None:
        """Return None: there are no files."""
        check_key(key)

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
        except _NotImplementedByServerError:
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
        from botocore.exceptions import ClientError

        name, write_id = self._name(key), uuid4().hex
        for attempt in range(_CONFLICT_ATTEMPTS):
            _wait_before(attempt)
            if not isinstance(body, bytes):
                body.seek(0)
            with self._explained(key):
                try:
                    answer = self._client.put_object(
                        Bucket=self._bucket,
                        Key=name,
                        Body=body,
                        Metadata={_WRITE_ID: write_id},
                        **condition,
                    )
                except ClientError as error:
                    if _status(error) == 409:
                        continue
                    if not _is_unmet(error, condition):
                        raise
                    repeated = attempt or error.response["ResponseMetadata"].get("RetryAttempts")
                    return self._etag_of_write(name, write_id) if repeated else None
                return _unquoted(answer["ETag"])
        raise StoreError(
            f"{key}: {self._where} answered {_CONFLICT_ATTEMPTS} times that somebody else is "
            "writing this object (409); try again later"
        )

    def _etag_of_write(self, name: str, write_id: str) -> str | None:
        """Return the object's ETag if it is what the write of that id left there."""
        from botocore.exceptions import ClientError

        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=name)
        except ClientError as error:
            if _status(error) == 404:
                return None
            raise
        return _unquoted(answer["ETag"]) if answer["Metadata"].get(_WRITE_ID) == write_id else None

    def _walk(self, start: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose names start with `start`, folder by folder.

        Not all servers list in byte order across folders, and only one folder is held in memory.
        """
        found: dict[str, ObjectInfo | None] = {}
        for page in self._pages(start):
            found.update(dict.fromkeys(_folders(page)))
            for entry in page.get("Contents", []):
                name = entry["Key"]
                if not name.endswith("/"):  # consoles make such objects to show a folder
                    found[name] = ObjectInfo(
                        name.removeprefix(self._prefix),
                        entry["Size"],
                        _unquoted(entry["ETag"]),
                        entry["LastModified"].astimezone(UTC),
                    )
        for name in sorted(found):
            info = found[name]
            if info is None:
                yield from self._walk(name)
            else:
                yield info

    def _pages(self, start: str) -> Iterator[ListObjectsV2OutputTypeDef]:
        pages = self._client.get_paginator("list_objects_v2")
        with self._explained(start.removeprefix(self._prefix) or self.url):
            yield from pages.paginate(Bucket=self._bucket, Prefix=start, Delimiter="/")

    @property
    def _where(self) -> str:
        return f"the S3 server {self._client.meta.endpoint_url}"

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Turn what boto3 raises into a `StoreError` that says what would work."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            raise self._explain_answer(key, error) from error
        except BotoCoreError as error:
            raise self._explain_failure(key, error) from error

    def _explain_answer(self, key: str, error: ClientError) -> StoreError:
        status, code = _status(error), error.response["Error"].get("Code", "")
        if code == "NoSuchBucket":
            return StoreError(
                f"{key}: {self._where} has no bucket {self._bucket!r}: create it, or name another "
                "in the store's address (s3://bucket/prefix)"
            )
        if code in {"PermanentRedirect", "AuthorizationHeaderMalformed"}:
            return StoreError(
                f"{key}: the bucket {self._bucket!r} is not in the region asked at {self._where}: "
                "set AWS_REGION to the bucket's"
            )
        match status:
            case 404:
                return ObjectNotFoundError(f"{key}: no such object in {self.url}")
            case 401 | 403:
                return StoreError(
                    f"{key}: {self._where} refused the credentials ({code}): check "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and that they "
                    f"may get, put, delete and list objects in the bucket {self._bucket!r}"
                )
            case 501:
                return _NotImplementedByServerError(f"{key}: {self._where} cannot do that ({code})")
        message = error.response["Error"].get("Message", "no message")
        return StoreError(f"{key}: {self._where} answered {status} {code}: {message}")

    def _explain_failure(self, key: str, error: BotoCoreError) -> StoreError:
        from botocore import exceptions

        kind = type(error).__name__
        if "Credential" in kind or "Token" in kind:
            return StoreError(
                f"{key}: no credentials for {self._where} ({kind}): set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )
        if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
            return StoreError(
                f"{key}: {self._where} cannot be reached ({kind}): check that it runs and that "
                "AWS_ENDPOINT_URL (empty for AWS itself) and AWS_REGION are right"
            )
        return StoreError(f"{key}: {self._where}: {error}")


def _make_client(settings: S3Settings) -> S3Client:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    default_style: AddressingStyle = "path" if settings.endpoint_url else "auto"
    config = Config(
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": settings.max_attempts},
        max_pool_connections=settings.pool_size,
        s3={"addressing_style": settings.addressing_style or default_style},
        signature_version="s3v4",
        # Newer checksums are optional for S3 and unknown to many compatible servers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        # A session of its own: making clients from the shared one is not thread-safe.
        session = boto3.session.Session()
        # Requests must be signed for some region, even where none matters.
        no_region = "us-east-1" if settings.endpoint_url else None
        return session.client(
            "s3",
            region_name=settings.region or session.region_name or no_region,
            endpoint_url=settings.endpoint_url,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(f"the settings for S3 do not work: {error}") from error


def _wait_before(attempt: int) -> None:
    """Wait between nothing and the whole of a time that doubles with each attempt but the first."""
    if attempt:
        longest_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
        time.sleep(longest_s * secrets.randbelow(1000) / 1000)


def _is_unmet(error: ClientError, condition: _Condition) -> bool:
    """Say whether the answer means that the write's condition is not met."""
    if _status(error) == 404:
        return "IfMatch" in condition and error.response["Error"].get("Code") != "NoSuchBucket"
    return _status(error) == 412


def _status(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def _folders(page: ListObjectsV2OutputTypeDef) -> Iterator[str]:
    return (entry["Prefix"] for entry in page.get("CommonPrefixes", []))


def _unquoted(etag: str) -> str:
    return etag.strip('"')
