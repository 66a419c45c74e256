"""One picture made small: a program of its own, since what decodes a stranger's picture may need any memory and time.

Reads the picture from standard input and writes a WebP to standard output; exit code 1 says that there can be none.
"""

import io
import math
import resource
import sys

from PIL import Image

LARGEST_SIDE = 480  # pixels
TALLEST = 1.5  # of a picture's width; a longer page is shown by its top
MAX_PIXELS = 25_000_000  # decoding takes up to four bytes for each
MEMORY = 768 * 1024 * 1024  # bytes of address space, the interpreter and Pillow's libraries included
CPU_SECONDS = 10


def small(original: bytes, image_format: str) -> bytes | None:
    """A WebP of at most 480 pixels a side; None for what is too large to decode."""
    result = io.BytesIO()
    with Image.open(io.BytesIO(original), formats=[image_format]) as image:
        if image.width * image.height > MAX_PIXELS:
            return None
        # JPEG decodes at a fraction of its size when asked in time.
        image.draft(None, (LARGEST_SIDE * 2, LARGEST_SIDE * 2))
        top = image.crop((0, 0, image.width, min(image.height, math.ceil(image.width * TALLEST))))
        top = top.convert("RGBA" if image.has_transparency_data else "RGB")
        top.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
        top.save(result, "WEBP", quality=80)
    return result.getvalue()


def main() -> int:
    """Shrink one picture within the limits."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        picture = small(sys.stdin.buffer.read(), sys.argv[1])
    except Exception:  # noqa: BLE001  (hostile bytes may raise anything in Pillow's readers, and then are no picture)
        return 1
    if picture is None:
        return 1
    sys.stdout.buffer.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
