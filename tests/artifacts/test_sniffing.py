"""What a file is, by its bytes: images that are images, text that is text, and everything else opaque."""

import io
import struct
import zlib

import pytest

from artifacts.services import sniffing
from tests.artifacts.conftest import picture

OPAQUE = "application/octet-stream"
HTML = b"<!doctype html><script>alert(1)</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def sniff(content: bytes, name: str = "file") -> str:
    """The type of bytes under a name."""
    return sniffing.content_type(io.BytesIO(content), name=name, size=len(content))


def png_of(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_raster_image_is_known_whatever_its_name(image_format: str) -> None:
    assert sniff(picture(image_format), "report.html") == f"image/{image_format.lower()}"


@pytest.mark.parametrize("name", ["x.png", "x.svg", "x.html", "x.xhtml", "x.pdf", "x.js", "x.xml", "x"])
@pytest.mark.parametrize(
    "content", [HTML, SVG, b"%PDF-1.7\n", b"PK\x03\x04", b"MZ\x90", b"BM" + b"\0" * 60, b"II*\0" + b"\0" * 60]
)
def test_whatever_could_run_or_be_rendered_is_opaque(name: str, content: bytes) -> None:
    assert sniff(content, name) == OPAQUE


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n" + HTML,
        b"GIF89a" + HTML,
        b"\xff\xd8\xff\xe0" + HTML,
        b"RIFF\x10\0\0\0WEBPVP8 " + HTML,
        picture()[:60],
        picture()[:-20],
        picture().replace(b"IHDR", b"IHDX"),
        picture().replace(b"IDAT", b"IDAX"),
    ],
    ids=range(8),
)
def test_a_head_of_an_image_alone_is_no_image(content: bytes) -> None:
    assert sniff(content, "x.png") == OPAQUE


@pytest.mark.parametrize(
    ("width", "height"), [(9000, 9000), (12000, 12000), (20000, 20000), (2**31 - 1, 2**31 - 1), (0, 5)]
)
def test_an_image_of_too_many_pixels_is_only_ever_downloaded(width: int, height: int) -> None:
    assert sniff(png_of(width, height)) == OPAQUE


def test_a_tall_page_is_still_an_image() -> None:
    assert sniff(png_of(1280, 30_000)) == "image/png"


def test_an_image_of_too_many_bytes_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniffing, "IMAGE_BYTES", 50)
    assert sniff(picture()) == OPAQUE


@pytest.mark.parametrize("name", ["run.log", "notes.TXT", "data.json"])
def test_text_is_text_by_name_and_bytes(name: str) -> None:
    assert sniff("größe ✓\n".encode() * 100_000, name) == "text/plain"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", "ü".encode()[:1], b"a\0b", b"\xed\xa0\x80"])
def test_text_that_is_not_utf_8_or_holds_nul_is_opaque(content: bytes) -> None:
    assert sniff(content, "run.log") == OPAQUE


def test_an_empty_file_is_no_image() -> None:
    assert sniff(b"", "x.png") == OPAQUE
    assert sniff(b"", "x.log") == "text/plain"
