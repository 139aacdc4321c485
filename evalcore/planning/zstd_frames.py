"""Zstandard frames of bounded size: parts of plans, recordings."""

from __future__ import annotations

from typing import Final

import zstandard

LARGEST_FRAME_BYTES: Final = 512 * 1024 * 1024
"""What a frame may hold when it is decompressed; compressed, a frame of any size is small."""


class ZstdFrameError(ValueError):
    """A frame is damaged or holds too much; the message follows the name of what holds it."""


def compress_frame(data: bytes, *, level: int = 1, checksum: bool = True) -> bytes:
    """Return `data` as one frame."""
    return zstandard.ZstdCompressor(level=level, write_checksum=checksum).compress(data)


def decompress_frame(frame: bytes) -> bytes:
    """Return what a frame holds; raise `ZstdFrameError` before it takes more than the bound."""
    try:
        size = zstandard.frame_content_size(frame)
        if size > LARGEST_FRAME_BYTES:
            raise ZstdFrameError(f"says that it holds {size} bytes")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=LARGEST_FRAME_BYTES)
    except zstandard.ZstdError as error:
        raise ZstdFrameError(f"cannot be read: {error}") from error
