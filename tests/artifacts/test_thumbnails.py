"""Small pictures: made once, by maintenance, and never of what would cost too much to decode."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from artifacts.models import JobArtifact
from artifacts.services import shrinking, thumbnails
from artifacts.services.refusals import StorageUnavailable
from artifacts.services.thumbnails import Thumbnailed, make_thumbnails, owner_of, thumbnail
from tests.artifacts.conftest import Runner, Store, on_both_storages, picture

pytestmark = pytest.mark.django_db


def size_of(webp: bytes) -> tuple[int, int]:
    """The size of a thumbnail."""
    with Image.open(io.BytesIO(webp), formats=["WEBP"]) as image:
        image.load()
        return image.size


@on_both_storages
def test_an_image_gets_its_thumbnail_beside_it_once(runner: Runner, store: Store) -> None:
    row = runner.attach("a.png", picture(size=(1280, 720))).artifact
    runner.attach("a.log", b"no image")
    assert make_thumbnails() == Thumbnailed(made=1, skipped=0)
    assert make_thumbnails() == Thumbnailed(made=0, skipped=0)
    row.refresh_from_db()
    assert row.thumbnail_path is not None
    assert owner_of(row.thumbnail_path) == row.storage_path
    with store.backend.open(row.thumbnail_path) as file:
        assert size_of(file.read()) == (480, 270)


@pytest.mark.parametrize(
    ("image_format", "mode"),
    [("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "L"), ("PNG", "1"), ("PNG", "I;16"), ("JPEG", "CMYK"),
     ("JPEG", "L"), ("GIF", "P"), ("WEBP", "RGBA")],
)  # fmt: skip
def test_every_colour_mode_has_a_thumbnail(image_format: str, mode: str) -> None:
    small = thumbnail(picture(image_format, (600, 600), mode), f"image/{image_format.lower()}")
    assert small is not None
    assert size_of(small) == (480, 480)


def test_a_tall_page_is_shown_by_its_top() -> None:
    small = thumbnail(picture(size=(400, 9000)), "image/png")
    assert small is not None
    assert size_of(small) == (320, 480)


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (3, 2)])
def test_a_sliver_has_a_thumbnail_too(size: tuple[int, int]) -> None:
    small = thumbnail(picture(size=size), "image/png")
    assert small is not None
    assert max(size_of(small)) <= 480


def test_too_many_pixels_are_never_decoded_and_never_tried_again(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(*args: Any) -> None:
        pytest.fail("an image over the limit was decoded")

    bomb = picture(size=(5001, 5000), mode="L")
    runner.attach("bomb.png", bomb)
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "crop", decoded)
        assert shrinking.small(bomb, "PNG") is None
    assert make_thumbnails() == Thumbnailed(made=0, skipped=1)
    assert JobArtifact.objects.get().thumbnail_path == ""
    assert make_thumbnails() == Thumbnailed(made=0, skipped=0)


def test_broken_pixels_behind_a_good_head_are_skipped() -> None:
    assert thumbnail(picture("JPEG", (800, 800))[:700], "image/jpeg") is None


def test_a_row_of_plain_sql_is_left_alone(runner: Runner) -> None:
    JobArtifact.objects.create(job=runner.job, name="a.png", storage_path="elsewhere")
    assert make_thumbnails() == Thumbnailed(made=0, skipped=0)


def test_missing_bytes_are_noted_and_do_not_hold_up_the_others(runner: Runner, store: Store) -> None:
    whole = runner.attach("whole.png", picture()).artifact
    lost = runner.attach("lost.png", picture()).artifact
    store.backend.delete(lost.storage_path)
    assert make_thumbnails() == Thumbnailed(made=1, skipped=0)
    lost.refresh_from_db()
    whole.refresh_from_db()
    assert (bool(lost.missing_at), lost.thumbnail_path, bool(whole.thumbnail_path)) == (True, None, True)


def test_a_storage_that_is_down_leaves_the_image_waiting(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.attach("a.png", picture())

    def failing(*args: Any) -> None:
        raise OSError("away")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.backend), "_save", failing)
        with pytest.raises(StorageUnavailable):
            make_thumbnails()
    assert make_thumbnails() == Thumbnailed(made=1, skipped=0)


def test_of_two_makers_at_once_one_wins_and_the_other_leaves_nothing(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = runner.attach("a.png", picture()).artifact
    stored_thumbnail = thumbnails._stored_thumbnail

    def slow(artifact: JobArtifact) -> str:
        key = stored_thumbnail(artifact)
        monkeypatch.setattr(thumbnails, "_stored_thumbnail", stored_thumbnail)
        assert make_thumbnails() == Thumbnailed(made=1, skipped=0)  # the other one, in between
        return key

    monkeypatch.setattr(thumbnails, "_stored_thumbnail", slow)
    assert make_thumbnails() == Thumbnailed(made=0, skipped=0)
    row.refresh_from_db()
    assert store.keys == [row.storage_path, row.thumbnail_path]


def shrunk_by(program: str) -> "subprocess.CompletedProcess[bytes]":
    """The child's answer when decoding does what `program` says."""
    script = f"import sys; sys.argv[1:] = ['PNG']\nfrom artifacts.services import shrinking\n{program}\n"
    script += "sys.exit(shrinking.main())"
    return subprocess.run([sys.executable, "-c", script], input=picture(), capture_output=True, check=False)


@pytest.mark.parametrize(
    "program",
    [
        "shrinking.small = lambda *_: bytearray(10 ** 10)",
        "shrinking.CPU_SECONDS = 1\ndef spin(*_):\n    while True: pass\nshrinking.small = spin",
        "import tempfile; shrinking.small = lambda *_: tempfile.TemporaryFile().write(b'x' * 10 ** 6)",
        "import os; shrinking.small = lambda *_: os.abort()",
    ],
)
def test_a_picture_that_takes_memory_time_or_a_crash_costs_its_child_and_nothing_else(program: str) -> None:
    done = shrunk_by(program)
    assert done.returncode != 0
    assert done.stdout == b""


def test_a_child_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hung = tmp_path / "hung.py"
    hung.write_text("import signal; signal.pause()")
    monkeypatch.setattr(shrinking, "__file__", str(hung))
    monkeypatch.setattr(thumbnails, "SECONDS", 1)
    assert thumbnail(picture(), "image/png") is None


def test_the_childs_program_answers_with_a_webp() -> None:
    assert size_of(shrunk_by("").stdout) == (40, 30)
