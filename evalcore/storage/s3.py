"""An object store in a bucket of S3 or of a server compatible with it.

boto3 is imported when a store is made: that takes a third of a second.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit
from uuid import uuid4

from evalcore.errors import ObjectNotFoundError, SettingsError, StoreError
from evalcore.redaction.redactor import PROCESS
from evalcore.storage.store import (
    ObjectInfo,
    StoredObject,
    check_folder,
    check_key,
    check_prefix,
)
from evalcore.trust.machine_faults import retried
from evalcore.trust.network import proxy_for, shown_proxy
from evalcore.wording import one_line

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError
    from mypy_boto3_s3 import S3Client


Encryption: TypeAlias = Literal["AES256", "aws:kms", "aws:kms:dsse"]


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach the server. Credentials are not here: boto3 finds them where it always does.

    `max_attempts` counts the first one. `encryption` is how the server encrypts what is written
    (`AES256`, `aws:kms`, `aws:kms:dsse`), by default as the bucket says; `kms_key_id` names the key
    of `aws:kms`.
    """

    endpoint_url: str | None = None
    region: str | None = None
    read_timeout_s: float = 60.0
    max_attempts: int = 6
    encryption: Encryption | None = None
    kms_key_id: str | None = None

    def __post_init__(self) -> None:
        if self.encryption not in (None, *get_args(Encryption)):
            choices = ", ".join(get_args(Encryption))
            raise SettingsError(
                f"AWS_SERVER_SIDE_ENCRYPTION is '{self.encryption}'; known: {choices}"
            )
        if self.kms_key_id and self.encryption in (None, "AES256"):
            raise SettingsError(
                "AWS_SSE_KMS_KEY_ID needs AWS_SERVER_SIDE_ENCRYPTION=aws:kms (or aws:kms:dsse)"
            )
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
        """Read AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL), AWS_REGION (or AWS_DEFAULT_REGION).

        And AWS_SERVER_SIDE_ENCRYPTION with AWS_SSE_KMS_KEY_ID.
        """
        value = environment.get
        return cls(
            endpoint_url=value("AWS_ENDPOINT_URL_S3") or value("AWS_ENDPOINT_URL") or None,
            region=value("AWS_REGION") or value("AWS_DEFAULT_REGION") or None,
            encryption=cast("Encryption | None", value("AWS_SERVER_SIDE_ENCRYPTION") or None),
            kms_key_id=value("AWS_SSE_KMS_KEY_ID") or None,
        )

    @property
    def written(self) -> dict[str, Any]:
        """What each request that writes an object says of its encryption."""
        options = {"ServerSideEncryption": self.encryption, "SSEKMSKeyId": self.kms_key_id}
        return {name: value for name, value in options.items() if value is not None}


# How long to wait after each answer that another client is writing the same object (409).
_CONFLICT_WAITS_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0)
_BODY_WAITS_S: Final = (0.5, 1.0)
_WRITE_ID: Final = "evalcore-write"  # metadata: which call wrote the object


class S3Store:
    """An `ObjectStore` below `prefix` in a bucket, which must exist.

    boto3 repeats requests that fail on the way or with 5xx. A conditional write whose answer was
    lost is settled by reading back: each write carries an id of its own. (One case stays
    open: the own swap was lost sight of and its object has been replaced since. None then means
    "not yours any more".) Objects of up to 5 GiB: S3's limit for a request.

    The ETag is the server's.
    """

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        prefix = prefix.strip("/")
        check_prefix(prefix)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._settings = settings
        self._client = _make_client(bucket, settings)
        self._server = f"the S3 server {self._client.meta.endpoint_url}"

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
        from botocore.exceptions import IncompleteReadError, ResponseStreamingError

        name = self._name(key)

        def get() -> StoredObject:
            answer = self._client.get_object(Bucket=self._bucket, Key=name)
            with closing(answer["Body"]) as body:
                return StoredObject(body.read(), _unquoted(answer["ETag"]))

        # boto3 repeats requests, but not one whose body breaks off.
        broken_off = IncompleteReadError, ResponseStreamingError
        with self._explained(key):
            return retried(get, _BODY_WAITS_S, lambda error: isinstance(error, broken_off))

    def exists(self, key: str) -> bool:
        """Whether there is an object at `key`: one HEAD request, a twelfth of a listing's price."""
        try:
            with self._explained(key):
                self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except ObjectNotFoundError:
            return False
        return True

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        """Write the object, replacing any; return its ETag."""
        name = self._name(key)
        body = data if isinstance(data, bytes) else b"".join(data)
        with self._explained(key):
            answer = self._client.put_object(
                Bucket=self._bucket, Key=name, Body=body, **self._settings.written
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
        check_prefix(prefix)
        return self._walk(self._prefix + prefix)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly below `prefix`, in byte order."""
        check_folder(prefix)
        start = self._prefix + prefix
        folders = [name for name, entry in self._entries(start) if entry is None]
        yield from sorted(folder[len(start) : -1] for folder in folders)

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        with suppress(ObjectNotFoundError), self._explained(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._name(key))

    def presign(self, key: str, *, expires_s: int = 3600) -> str:
        """Return a URL that reads the object without credentials for `expires_s` seconds."""
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
        except NotImplementedByServerError:
            return False
        finally:
            self.delete(key)

    def _name(self, key: str) -> str:
        check_key(key)
        check_key(self._prefix + key)
        return self._prefix + key

    def _put_conditionally(
        self, key: str, body: bytes | BinaryIO, condition: dict[str, Any]
    ) -> str | None:
        """Return the ETag of the write, or None if the condition is not met."""
        from botocore.exceptions import BotoCoreError, ClientError

        name, write_id = self._name(key), uuid4().hex
        options = {"Metadata": {_WRITE_ID: write_id}, **self._settings.written, **condition}
        conflicts, repeated = iter(_CONFLICT_WAITS_S), False
        with self._explained(key):
            while True:
                if not isinstance(body, bytes):
                    body.seek(0)
                try:
                    answer = self._client.put_object(
                        Bucket=self._bucket, Key=name, Body=body, **options
                    )
                    return _unquoted(answer["ETag"])
                except ClientError as error:
                    status, metadata = _status_of(error), error.response["ResponseMetadata"]
                    repeated = repeated or metadata.get("RetryAttempts", 0) > 0
                    if status == 409 and (wait_s := next(conflicts, None)) is not None:
                        time.sleep(wait_s)
                        continue
                    is_gone = status == 404 and _code_of(error) != "NoSuchBucket"
                    is_unmet = status == 412 or (is_gone and "IfMatch" in condition)
                    if not is_unmet and status < 500:
                        raise
                    # An attempt before may have been taken although its answer was lost.
                    etag = self._etag_of_write(key, write_id) if repeated else None
                    if etag is None and not is_unmet:
                        raise
                    return etag
                except BotoCoreError:
                    etag = self._etag_of_write(key, write_id)
                    if etag is None:
                        raise
                    return etag

    def _etag_of_write(self, key: str, write_id: str) -> str | None:
        """Return the object's ETag if it is what the write of that id left there."""
        name = self._name(key)
        try:
            with self._explained(key):
                answer = self._client.head_object(Bucket=self._bucket, Key=name)
        except ObjectNotFoundError:
            return None
        is_own = answer["Metadata"].get(_WRITE_ID) == write_id
        return _unquoted(answer["ETag"]) if is_own else None

    def _walk(self, start: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose names start with `start`, folder by folder.

        Not all servers list in byte order across folders, and only one folder is held in memory.
        """
        for name, entry in sorted(dict(self._entries(start)).items()):
            if entry is None:
                yield from self._walk(name)
            elif not name.endswith("/"):  # consoles make such objects to show a folder
                key, modified_at = name.removeprefix(self._prefix), entry["LastModified"]
                yield ObjectInfo(key, entry["Size"], modified_at.astimezone(UTC))

    def _entries(self, start: str) -> Iterator[tuple[str, Any]]:
        """Yield the objects (with what the server says) and folders (None) of one folder."""
        pages = self._client.get_paginator("list_objects_v2")
        with self._explained(start.removeprefix(self._prefix) or self.url):
            for page in pages.paginate(Bucket=self._bucket, Prefix=start, Delimiter="/"):
                yield from ((folder["Prefix"], None) for folder in page.get("CommonPrefixes", ()))
                yield from ((entry["Key"], entry) for entry in page.get("Contents", ()))

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Turn what boto3 raises into a `StoreError` that says what would work."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            raise self._refusal(key, error) from error
        except BotoCoreError as error:
            reason = _failure(error, self._server, self._client.meta.endpoint_url)
            raise StoreError(f"{key}: {reason}") from error

    def _refusal(self, key: str, error: ClientError) -> StoreError:
        """Return the error for a server's answer; it says what would work."""
        status, code = _status_of(error), _code_of(error)
        if status == 404 and code != "NoSuchBucket":
            return ObjectNotFoundError(f"{key}: no such object in {self.url}")
        message = one_line(PROCESS.message(error.response["Error"].get("Message") or "no message"))
        advice = _ADVICE.get(code, _ADVICE.get(str(status), ""))
        if status == 403 and "encryption" in message.lower():
            advice = _ENCRYPTION
        if code in _EXPIRED and (run := _RUN.match(key)) is not None:
            advice += f"; then `evalcore run --resume {run[1]}` continues the run"
        kind = NotImplementedByServerError if status == 501 else StoreError
        answer = f"{key}: {self._server} answered {status} for the bucket {self._bucket!r}"
        return kind(f"{answer} ({code}: {message}){advice and f': {advice}'}")


def _make_client(bucket: str, settings: S3Settings) -> S3Client:
    import botocore.session
    from boto3.session import Session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    region = settings.region or "us-east-1"
    address = settings.endpoint_url or f"https://{bucket}.s3.{region}.amazonaws.com"
    proxy = proxy_for(address)
    config = Config(
        connect_timeout=5.0,
        # boto3 would ask a proxy for this machine, too.
        proxies={urlsplit(address).scheme: proxy} if proxy else {},
        read_timeout=settings.read_timeout_s,
        # The other modes have a quota of repetitions, which one bad minute uses up for all calls
        # of a process.
        retries={"mode": "legacy", "total_max_attempts": settings.max_attempts},
        max_pool_connections=32,  # more threads than that wait for new ones
        s3={"addressing_style": "path" if settings.endpoint_url else "auto"},
        signature_version="s3v4",
        # Newer checksums are optional for S3 and unknown to many compatible servers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        # A session of its own, which reads the credentials anew: a shared one is not thread-safe.
        core = botocore.session.get_session()
        core.register_component("data_loader", _service_descriptions())
        session = Session(botocore_session=core)
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


@cache
def _service_descriptions() -> Any:
    """Return what reads the descriptions of services, once: they are most of a client's cost."""
    from botocore.loaders import create_loader

    return create_loader()


def _unquoted(etag: str) -> str:
    return etag.strip('"')


_RIGHTS = (
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and that they may get, "
    "put, delete and list objects in the bucket"
)
_ENCRYPTION = (
    "set AWS_SERVER_SIDE_ENCRYPTION (and AWS_SSE_KMS_KEY_ID) to what the bucket's policy asks for"
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
# What would work, by the server's code, else by its status.
_ADVICE: Final = {
    **dict.fromkeys(_EXPIRED, "the credentials have expired, renew them"),
    "NoSuchBucket": "create it, or name another in the store's address (s3://bucket/prefix)",
    "PermanentRedirect": "set AWS_REGION to the bucket's",
    "AuthorizationHeaderMalformed": "set AWS_REGION to the bucket's",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "401": _RIGHTS,
    "403": _RIGHTS,
    "409": "another client is writing this object; try again later",
    "501": "evalcore needs conditional writes (If-None-Match, If-Match)",
}
_RUN = re.compile(r"runs/[^/]+/([^/]+)/")


class NotImplementedByServerError(StoreError):
    """The server knows the request and does not support it (501)."""


def _failure(error: BotoCoreError, where: str, endpoint_url: str) -> str:
    """Say why a request had no answer, and what would work."""
    from botocore import exceptions

    kind = type(error).__name__
    if "Credential" in kind or "Token" in kind:
        return (
            f"no credentials for {where} ({kind}): set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if isinstance(error, exceptions.ProxyConnectionError):
        proxy = shown_proxy(proxy_for(endpoint_url) or "")
        return (
            f"no connection to the proxy {proxy} on the way to {where}: is it right? NO_PROXY "
            "names hosts that need none"
        )
    if isinstance(error, exceptions.SSLError):
        return (
            f"the certificate of {where} is not trusted ({one_line(str(error.kwargs.get('error')))}"
            "): name the file of your authority in AWS_CA_BUNDLE or SSL_CERT_FILE"
        )
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        return (
            f"{where} cannot be reached ({kind}): check that it runs and that AWS_ENDPOINT_URL "
            "(empty for AWS itself) and AWS_REGION are right"
        )
    return f"{where}: {error}"


def _status_of(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def _code_of(error: ClientError) -> str:
    return error.response["Error"].get("Code", "")
