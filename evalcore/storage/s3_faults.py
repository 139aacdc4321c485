"""What the answers and failures of an S3 server mean: what is wrong, what may pass by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.frozen import frozen

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_PASSING_STATUS = frozenset({429, 500, 502, 503, 504})
_PASSING_CODES = frozenset({"RequestTimeout", "SlowDown", "InternalError"})


class NotImplementedByServerError(StoreError):
    """The server knows the request and does not support it (501)."""


@frozen
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
        match status:
            case 404:
                return ObjectNotFoundError(f"{key}: no such object in {self.url}")
            case 401 | 403:
                return StoreError(
                    f"{key}: {self.where} refused the credentials ({code}): check "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and that they "
                    f"may get, put, delete and list objects in the bucket {self.bucket!r}"
                )
            case 501:
                return NotImplementedByServerError(f"{key}: {self.where} cannot do that ({code})")
        message = error.response["Error"].get("Message", "no message")
        return StoreError(f"{key}: {self.where} answered {status} {code}: {message}")

    def explain_failure(self, key: str, error: BotoCoreError) -> StoreError:
        """Return the error for a request without an answer; it says what would work."""
        from botocore import exceptions

        kind = type(error).__name__
        if "Credential" in kind or "Token" in kind:
            return StoreError(
                f"{key}: no credentials for {self.where} ({kind}): set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
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
