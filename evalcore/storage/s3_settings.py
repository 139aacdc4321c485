"""The settings of a server of S3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict, cast, get_args
from urllib.parse import urlsplit

from evalcore.errors import SettingsError

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
    Objects and files of more than two pieces (`piece_bytes`, at least 5 MiB for S3 itself) are
    read and written in pieces, four at once. `encryption` is how the server encrypts what is
    written (`AES256`, `aws:kms`, `aws:kms:dsse`), by default as the bucket says; `kms_key_id` names
    the key of `aws:kms`.
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
