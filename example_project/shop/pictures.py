"""Product pictures: drawn when the shop is opened, made small by a job."""

import random
from io import BytesIO

from PIL import Image, ImageDraw

SIZE = (640, 480)
SMALL = (160, 120)


def draw(name: str) -> bytes:
    """A picture for the product called ``name``, as JPEG; the same name gives the same picture."""
    dice = random.Random(name)
    picture = Image.new("RGB", SIZE, _colour(dice))
    pen = ImageDraw.Draw(picture)
    for _ in range(24):
        x, y, r = dice.randrange(SIZE[0]), dice.randrange(SIZE[1]), dice.randrange(20, 110)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=_colour(dice))
    return _bytes(picture, "JPEG")


def shrink(data: bytes) -> bytes:
    """``data`` (any format that Pillow reads) as a PNG no larger than :data:`SMALL`.

    :raises PIL.UnidentifiedImageError: where ``data`` is no picture.
    """
    with Image.open(BytesIO(data)) as picture:
        picture.thumbnail(SMALL)
        return _bytes(picture, "PNG")


def _colour(dice: random.Random) -> tuple[int, int, int]:
    return dice.randrange(256), dice.randrange(256), dice.randrange(256)


def _bytes(picture: Image.Image, kind: str) -> bytes:
    out = BytesIO()
    picture.save(out, kind)
    return out.getvalue()
