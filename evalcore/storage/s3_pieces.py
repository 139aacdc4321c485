"""Large objects of S3 in pieces, several at once: one connection has a tenth of a network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, GetObjectOutputTypeDef

    from evalcore.storage.s3_settings import WriteOptions

_AT_ONCE = 4
# An object of fewer pieces is read by the request that has asked for it.
_MANY_PIECES = 2


def read_body(
    client: S3Client,
    answer: GetObjectOutputTypeDef,
    source: tuple[str, str],
    piece_bytes: int,
    repeated: Callable[[Callable[[], bytes]], bytes],
) -> bytes:
    """Return the object that an answer begins; the rest of a large one comes by further requests.

    `source` is the bucket and the name. The further requests hold for this version of the object
    only, and are `repeated` each by itself.
    """
    bucket, name = source
    length, etag = answer["ContentLength"], answer["ETag"]
    body = answer["Body"]
    try:
        if length <= _MANY_PIECES * piece_bytes:
            return body.read()

        def read_piece(start: int) -> bytes:
            stop = min(start + piece_bytes, length) - 1
            piece = client.get_object(
                Bucket=bucket, Key=name, Range=f"bytes={start}-{stop}", IfMatch=etag
            )
            try:
                return piece["Body"].read()
            finally:
                piece["Body"].close()

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="range") as threads:
            rest = [
                threads.submit(repeated, partial(read_piece, start))
                for start in range(piece_bytes, length, piece_bytes)
            ]
            first = body.read(piece_bytes)
            return b"".join([first, *(piece.result() for piece in rest)])
    finally:
        body.close()


def is_large(path: Path, piece_bytes: int) -> bool:
    """Whether a file is worth several requests."""
    return path.stat().st_size > _MANY_PIECES * piece_bytes


def put_pieces(
    client: S3Client,
    path: Path,
    target: tuple[str, str],
    piece_bytes: int,
    repeated: Callable[[Callable[[], str]], str],
    metadata: Mapping[str, str],
    options: WriteOptions,
) -> str:
    """Write a large file in pieces unless there is an object; return its ETag, with quotes.

    `target` is the bucket and the name. The object appears as a whole, with the last request, which
    has the condition and raises as a single one does. What was sent before a failure is removed.
    """
    bucket, name = target
    upload = client.create_multipart_upload(Bucket=bucket, Key=name, Metadata=metadata, **options)[
        "UploadId"
    ]

    def put_piece(number: int) -> str:
        with path.open("rb") as file:
            file.seek((number - 1) * piece_bytes)
            piece = file.read(piece_bytes)
        answer = client.upload_part(
            Bucket=bucket, Key=name, UploadId=upload, PartNumber=number, Body=piece
        )
        return answer["ETag"]

    numbers = range(1, -(-path.stat().st_size // piece_bytes) + 1)
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="piece") as threads:
            etags = threads.map(lambda number: repeated(partial(put_piece, number)), numbers)
            parts: list[CompletedPartTypeDef] = [
                {"PartNumber": number, "ETag": etag}
                for number, etag in zip(numbers, etags, strict=True)
            ]
        answer = client.complete_multipart_upload(
            Bucket=bucket,
            Key=name,
            UploadId=upload,
            MultipartUpload={"Parts": parts},
            IfNoneMatch="*",
        )
    except BaseException:  # an interrupt leaves no unfinished upload behind, too
        with suppress(ClientError, BotoCoreError):
            client.abort_multipart_upload(Bucket=bucket, Key=name, UploadId=upload)
        raise
    return answer["ETag"]
