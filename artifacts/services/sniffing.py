"""What a file is, by its bytes. What its sender says of it is never believed."""

import codecs
from typing import BinaryIO

import filetype
from PIL import Image

from artifacts.models import OPAQUE, RASTER, TEXT

TEXT_ENDINGS = (".txt", ".log", ".json")
IMAGE_BYTES = 32 * 1024 * 1024  # Pillow holds parts of an image in memory; a larger one is opaque
# A browser decodes an image whole. Below Pillow's own limit for warnings, so that this one is what counts.
INLINE_PIXELS = 80_000_000
_HEAD, _BLOCK = 8192, 256 * 1024


def content_type(file: BinaryIO, *, name: str, size: int) -> str:
    """The type to keep for a seekable file of `size` bytes: a checked raster image, plain text, or opaque."""
    file.seek(0)
    guess = filetype.guess_mime(file.read(_HEAD)) if size else None
    if guess in RASTER:
        return guess if size <= IMAGE_BYTES and _is_image(file, RASTER[guess]) else OPAQUE
    if guess is None and name.lower().endswith(TEXT_ENDINGS) and is_text(file):
        return TEXT
    return OPAQUE


def _is_image(file: BinaryIO, image_format: str) -> bool:
    file.seek(0)
    try:
        with Image.open(file, formats=[image_format]) as image:
            if image.width * image.height > INLINE_PIXELS:
                return False
            image.verify()
    except Exception:  # noqa: BLE001  (hostile bytes may raise anything in Pillow's readers, and then are no image)
        return False
    return True


def is_text(file: BinaryIO) -> bool:
    """Whether all of a seekable file is UTF-8 without NUL."""
    file.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while block := file.read(_BLOCK):
            if "\0" in decoder.decode(block):
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
