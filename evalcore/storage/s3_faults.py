"""What the answers and failures of an S3 server mean: what is wrong, what may pass by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.mistakes.foreign_text import one_line
from evalcore.network import proxy_for
from evalcore.redaction.redactor import PROCESS

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_PASSING_STATUS = frozenset({429, 500, 502, 503, 504})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
# What is refused although the keys are known.
_NOT_KEYS = frozenset({"AccessDenied", "RequestTimeTooSkewed", "403", "Forbidden"})
_RUN = re.compile(r"runs/[^/]+/([^/]+)/")
_PASSING_CODES = frozenset({"RequestTimeout", "SlowDown", "InternalError"})


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


def may_pass(error: BotoCoreError | ClientError) -> bool:
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
