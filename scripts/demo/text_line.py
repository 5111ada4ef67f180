# SPDX-License-Identifier: Apache-2.0
"""The image of a text line: drawn, or a user's own file."""

import dataclasses
from pathlib import Path

from dnnl_tests.models import ocr
from PIL import Image, UnidentifiedImageError

from scripts.errors import SetupError

# A wider line is squeezed: at this width it is 40 times as long as high.
MOST = 1920


@dataclasses.dataclass
class Line:
    """An image of a text line, and where it comes from, for people."""

    image: Image.Image
    source: str

    def width(self):
        """Return the width at which the recogniser should be compiled for this line."""
        return ocr.natural_width(self.image, most=MOST)

    def turned(self):
        """Return the line turned by 180 degrees."""
        return Line(self.image.rotate(180), self.source + ", turned by 180 degrees")


def draw(text):
    """Draw a line of text, or raise SetupError when that is not possible."""
    if not text.strip() or not text.isprintable():
        raise SetupError("--text: needs one line of visible text", 'try --text "Hello".')
    font = ocr.load_font(32)
    missing = ocr.missing_glyphs(text, font)
    if missing:
        raise SetupError(
            f"--text: the font has no glyph for {' '.join(missing)}", "use --image FILE."
        )
    return Line(ocr.draw_line(text, font=font), f"drawn: {text}")


def read(path):
    """Open a user's image, or raise SetupError when that is not possible."""
    remedy = "name an image of one line of text that Pillow can read, such as a PNG or JPEG file."
    if not Path(path).is_file():
        what = "is a directory" if Path(path).is_dir() else "does not exist"
        raise SetupError(f"--image: {path} {what}", remedy)
    try:
        image = ocr.open_image(path)
    except UnidentifiedImageError as error:
        raise SetupError(f"--image: {path} is not an image", remedy) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SetupError(f"--image: cannot read {path}: {error}", remedy) from error
    return Line(image, str(path))
