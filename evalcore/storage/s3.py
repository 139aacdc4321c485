"""An object store in a bucket of S3 or of a server compatible with it.

boto3 is imported when a store is made: that takes a third of a second.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    BinaryIO,
    Literal,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
    get_args,
)
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
from evalcore.trust.network import proxy_for
from evalcore.wording import one_line

if TYPE_CHECKING:
    from boto3.session import Session
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.loaders import Loader
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef
    from s3transfer.futures import TransferFuture
    from s3transfer.manager import TransferManager


AddressingStyle: TypeAlias = Literal["path", "virtual", "auto"]
Encryption: TypeAlias = Literal["AES256", "aws:kms", "aws:kms:dsse"]


class WriteOptions(TypedDict, total=False):
    """Parameters of boto3 that say how an object is encrypted."""

    ServerSideEncryption: Encryption
    SSEKMSKeyId: str


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach the server. Credentials are not here: boto3 finds them where it always does.

    `addressing_style` None is `path` with an endpoint and `auto` without. `max_attempts` counts
    the first one. `pool_size` connections are kept; more threads than that wait for new ones.
    boto3 moves objects and files of more than two pieces (`piece_bytes`, at least 5 MiB for S3
    itself) in pieces, four at once. `encryption` is how the server encrypts what is written
    (`AES256`, `aws:kms`, `aws:kms:dsse`), by default as the bucket says; `kms_key_id` names the key
    of `aws:kms`.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    max_attempts: int = 6
    pool_size: int = 32
    piece_bytes: int = 16 * 1024 * 1024
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
    def written(self) -> WriteOptions:
        """What each request that begins an object says of its encryption."""
        options: WriteOptions = {}
        if self.encryption is not None:
            options["ServerSideEncryption"] = self.encryption
        if self.kms_key_id is not None:
            options["SSEKMSKeyId"] = self.kms_key_id
        return options


T = TypeVar("T")

_CONFLICT_ATTEMPTS = 10
_FIRST_CONFLICT_WAIT_S = 0.1
# Six attempts outlast a server that is away for five seconds.
_FIRST_FAULT_WAIT_S = 0.6
_LONGEST_WAIT_S = 5.0
_AT_ONCE = 4
# An object of fewer pieces is read and written by one request.
_MANY_PIECES = 2
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
        check_prefix(prefix)
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
            with closing(answer["Body"]) as body:
                if answer["ContentLength"] <= _MANY_PIECES * self._settings.piece_bytes:
                    return StoredObject(body.read(), _unquoted(answer["ETag"]))
            data = io.BytesIO()
            etag = self._transfer(lambda manager: manager.download(self._bucket, name, data))
            return StoredObject(data.getvalue(), _unquoted(etag or answer["ETag"]))

        return self._repeated(key, get)

    def download(self, key: str, path: Path) -> None:
        """Write the object at `key` into the file `path`."""
        name = self._name(key)
        self._repeated(
            key,
            lambda: self._transfer(lambda manager: manager.download(self._bucket, name, str(path))),
        )

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
        check_prefix(prefix)
        return self._walk(self._prefix + prefix)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly below `prefix`, in byte order."""
        check_folder(prefix)
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
        faults = _waits_s(_FIRST_FAULT_WAIT_S, self._settings.max_attempts)
        conflicts = _waits_s(_FIRST_CONFLICT_WAIT_S, _CONFLICT_ATTEMPTS)
        repeated = not isinstance(body, bytes)  # boto3 may have done so
        with self._explained(key):
            while True:
                try:
                    return self._put_once(name, body, write_id, condition)
                except (ClientError, BotoCoreError) as error:
                    if is_unmet(error, swapping="IfMatch" in condition):
                        # An attempt before may have been taken although its answer was lost.
                        return self._etag_of_write(key, write_id, body) if repeated else None
                    is_conflict = isinstance(error, ClientError) and status_of(error) == 409
                    if not is_conflict and not may_pass(error):
                        raise
                    wait_s = next(conflicts if is_conflict else faults, None)
                    if wait_s is None and is_conflict:
                        break
                    if wait_s is None:
                        etag = self._etag_of_write(key, write_id, body)
                        if etag is None:
                            raise
                        return etag
                    time.sleep(wait_s)
                    repeated = True
        raise StoreError(
            f"{key}: {self._server.where} answered {_CONFLICT_ATTEMPTS} times that "
            "another client is writing this object (409); try again later"
        )

    def _put_once(
        self, name: str, body: bytes | BinaryIO, write_id: str, condition: _Condition
    ) -> str:
        metadata = {_WRITE_ID: write_id}
        if not isinstance(body, bytes):
            body.seek(0)
            path = Path(body.name)
            if path.stat().st_size > _MANY_PIECES * self._settings.piece_bytes:
                options = {"Metadata": metadata, **self._settings.written}
                self._transfer(
                    lambda manager: manager.upload(str(path), self._bucket, name, options)
                )
                head = self._client.head_object(Bucket=self._bucket, Key=name)
                return _unquoted(head["ETag"])
        answer = self._client.put_object(
            Bucket=self._bucket,
            Key=name,
            Body=body,
            Metadata=metadata,
            **self._settings.written,
            **condition,
        )
        return _unquoted(answer["ETag"])

    def _transfer(self, begin: Callable[[TransferManager], TransferFuture]) -> str | None:
        """Let boto3 move an object in pieces; return the ETag of what it has read."""
        from boto3.s3.transfer import TransferConfig, create_transfer_manager
        from botocore.exceptions import ResponseStreamingError
        from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

        config = TransferConfig(
            multipart_threshold=self._settings.piece_bytes,
            multipart_chunksize=self._settings.piece_bytes,
            max_concurrency=_AT_ONCE,
            preferred_transfer_client="classic",
        )
        try:
            with create_transfer_manager(self._transfer_client, config) as manager:
                future = begin(manager)
                future.result()
        except (RetriesExceededError, S3DownloadFailedError) as error:
            # The connection broke off too often, or the object was replaced meanwhile.
            raise ResponseStreamingError(error=error) from error
        return future.meta.etag

    @cached_property
    def _transfer_client(self) -> S3Client:
        """The client of transfers: boto3 repeats their requests, each piece by itself.

        boto3's uploads take no condition, so this client adds it to the request that ends one.
        """
        client = _make_client(self._bucket, self._settings, self._settings.max_attempts)
        client.meta.events.register(
            "before-parameter-build.s3.CompleteMultipartUpload",
            lambda params, **_: params.update(IfNoneMatch="*"),
        )
        return client

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
        with self._explained(key):
            return retried(
                request, _waits_s(_FIRST_FAULT_WAIT_S, self._settings.max_attempts), may_pass
            )

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


def _make_client(bucket: str, settings: S3Settings, attempts: int = 1) -> S3Client:
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
        # `S3Store` repeats single requests itself: boto3 has a quota of repetitions that one bad
        # minute uses up for all calls of a process.
        retries={"mode": "standard", "total_max_attempts": attempts},
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


def _waits_s(first_s: float, attempts: int) -> Iterator[float]:
    """Yield the waits between so many attempts: each half to whole of a time that doubles."""
    for attempt in range(attempts - 1):
        longest_s = min(_LONGEST_WAIT_S, first_s * 2**attempt)
        yield longest_s * (1 + secrets.randbelow(1000) / 1000) / 2


def _folders(page: ListObjectsV2OutputTypeDef) -> Iterator[str]:
    return (entry["Prefix"] for entry in page.get("CommonPrefixes", []))


def _unquoted(etag: str) -> str:
    return etag.strip('"')


_PASSING_STATUS = frozenset({429, 500, 502, 503, 504})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
# What is refused although the keys are known.
_NOT_KEYS = frozenset({"AccessDenied", "RequestTimeTooSkewed", "403", "Forbidden"})
_RUN = re.compile(r"runs/[^/]+/([^/]+)/")
# NoSuchUpload: the upload was ended, and the answer was lost.
_PASSING_CODES = frozenset({"RequestTimeout", "SlowDown", "InternalError", "NoSuchUpload"})


class NotImplementedByServerError(StoreError):
    """The server knows the request and does not support it (501)."""


@dataclass(frozen=True, slots=True)
class S3Place:
    """What messages name: the server, the bucket, the store's address."""

    endpoint_url: str
    bucket: str
    url: str

    @property
    def where(self) -> str:
        """The server, as messages call it."""
        return f"the S3 server {self.endpoint_url}"

    def explain_answer(self, key: str, error: ClientError) -> StoreError:
        """Return the error for a server's answer; it says what would work."""
        status, code = status_of(error), error.response["Error"].get("Code", "")
        if code == "NoSuchBucket":
            return StoreError(
                f"{key}: {self.where} has no bucket {self.bucket!r}: create it, or name another "
                "in the store's address (s3://bucket/prefix)"
            )
        if code in {"PermanentRedirect", "AuthorizationHeaderMalformed"}:
            return StoreError(
                f"{key}: the bucket {self.bucket!r} is not in the region asked at {self.where}: "
                "set AWS_REGION to the bucket's"
            )
        message = one_line(PROCESS.message(error.response["Error"].get("Message") or "no message"))
        reason = f"({code}: {message})"
        if code in _EXPIRED:
            run = _RUN.match(key)
            resume = f"; then `evalcore run --resume {run[1]}` continues the run" if run else ""
            return StoreError(
                f"{key}: the credentials for {self.where} have expired {reason}: renew them{resume}"
            )
        match status:
            case 404:
                return ObjectNotFoundError(f"{key}: no such object in {self.url}")
            case 401 | 403:
                what = "request" if code in _NOT_KEYS else "credentials"
                remedy = self._remedy(code, message)
                return StoreError(f"{key}: {self.where} refused the {what} {reason}: {remedy}")
            case 501:
                return NotImplementedByServerError(
                    f"{key}: {self.where} cannot do that {reason}: evalcore needs conditional "
                    "writes (If-None-Match, If-Match)"
                )
        return StoreError(f"{key}: {self.where} answered {status} {code}: {message}")

    def _remedy(self, code: str, message: str) -> str:
        if code == "RequestTimeTooSkewed":
            return "set the clock of this machine"
        keys = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and that they "
        may = f"{keys}may get, put, delete and list objects in the bucket {self.bucket!r}"
        if "encryption" not in message.lower():
            return may
        return (
            "set AWS_SERVER_SIDE_ENCRYPTION (and AWS_SSE_KMS_KEY_ID) to what the bucket's policy "
            f"asks for, or {may}"
        )

    def explain_failure(self, key: str, error: BotoCoreError) -> StoreError:
        """Return the error for a request without an answer; it says what would work."""
        from botocore import exceptions

        kind = type(error).__name__
        if "Credential" in kind or "Token" in kind:
            return StoreError(
                f"{key}: no credentials for {self.where} ({kind}): set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )
        if isinstance(error, exceptions.ProxyConnectionError):
            proxy = proxy_for(self.endpoint_url)
            return StoreError(
                f"{key}: no connection to the proxy {proxy} on the way to {self.where}: is it "
                "right? NO_PROXY names hosts that need none"
            )
        if isinstance(error, exceptions.SSLError):
            return StoreError(
                f"{key}: the certificate of {self.where} is not trusted "
                f"({one_line(str(error.kwargs.get('error')))}): name the file of your authority "
                "in AWS_CA_BUNDLE or SSL_CERT_FILE"
            )
        if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
            return StoreError(
                f"{key}: {self.where} cannot be reached ({kind}): check that it runs and that "
                "AWS_ENDPOINT_URL (empty for AWS itself) and AWS_REGION are right"
            )
        return StoreError(f"{key}: {self.where}: {error}")


def may_pass(error: Exception) -> bool:
    """Say whether the same request may succeed a moment later."""
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        code = error.response["Error"].get("Code", "")
        return status_of(error) in _PASSING_STATUS or code in _PASSING_CODES
    if isinstance(error, exceptions.ProxyConnectionError | exceptions.SSLError):
        return False
    kinds = exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError
    return isinstance(error, kinds)


def is_unmet(error: BotoCoreError | ClientError, *, swapping: bool) -> bool:
    """Say whether the answer means that the condition of a write (of a swap) is not met."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return False
    if status_of(error) == 404:
        return swapping and error.response["Error"].get("Code") != "NoSuchBucket"
    return status_of(error) == 412


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an answer."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def new_session() -> Session:
    """Return a session of its own: making clients from a shared one is not thread-safe.

    It reads the environment and the files of credentials anew; the descriptions of the services,
    which are most of what a client costs, are shared.
    """
    import boto3
    import botocore.session

    core = botocore.session.get_session()
    loader = _service_descriptions(core.get_config_variable("data_path"))
    core.register_component("data_loader", loader)
    paths = len(loader.search_paths)
    session = boto3.session.Session(botocore_session=core)
    # Each session adds the folder of boto3's resources, which no client reads.
    del loader.search_paths[paths:]
    return session


@lru_cache(maxsize=4)
def _service_descriptions(data_path: str | None) -> Loader:
    from botocore.loaders import create_loader

    return create_loader(data_path)
