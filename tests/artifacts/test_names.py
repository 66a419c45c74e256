"""Names in headers: whatever a row says, the header is one line and the ending stays."""

import re
import unicodedata

import pytest

from artifacts.services.names import disposition


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("shot.png", 'attachment; filename="shot.png"'),
        ("файл.png", "attachment; filename*=utf-8''%D1%84%D0%B0%D0%B9%D0%BB.png"),
        ('a"b.png', 'attachment; filename="a_b.png"'),
        ("x\u202egnp.exe", 'attachment; filename="xgnp.exe"'),
        ("../../etc/passwd", 'attachment; filename="_.._etc_passwd"'),
        (".bashrc", 'attachment; filename="bashrc"'),
        ("", 'attachment; filename="artifact"'),
        ("\u202e", 'attachment; filename="artifact"'),
        ("a\r\nSet-Cookie: x=1", 'attachment; filename="aSet-Cookie_ x=1"'),
    ],
)
def test_a_name_becomes_a_header(name: str, header: str) -> None:
    assert disposition(name, inline=False) == header


def test_no_character_of_unicode_breaks_the_header_or_hides_in_it() -> None:
    for start in range(0, 0x3000, 64):
        header = disposition("".join(map(chr, range(start, start + 64))) + ".png", inline=True)
        assert re.fullmatch(r"inline; filename(=\"[\x20-\x7e]*\"|\*=utf-8''[!-~]*)", header)
        assert header.rstrip('"').endswith(".png")


def test_a_very_long_name_keeps_its_ending() -> None:
    header = disposition("x" * 5000 + ".tar.gz", inline=False)
    assert header.endswith('.tar.gz"')
    assert len(header) < 300
    assert unicodedata.is_normalized("NFC", header)
