"""The settings of a server of S3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from evalcore.errors import SettingsError
from evalcore.frozen import frozen

AddressingStyle: TypeAlias = Literal["path", "virtual", "auto"]


@frozen
class S3Settings:
    """How to reach the server. Credentials are not here: boto3 finds them where it always does.

    `addressing_style` None is `path` with an endpoint and `auto` without. `max_attempts` counts
    the first one. `pool_size` connections are kept; more threads than that wait for new ones.
    Objects and files of more than two pieces (`piece_bytes`, at least 5 MiB for S3 itself) are
    read and written in pieces, four at once.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    max_attempts: int = 6
    pool_size: int = 32
    piece_bytes: int = 16 * 1024 * 1024

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
