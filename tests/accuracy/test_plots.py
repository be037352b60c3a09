"""Pictures and tables of results: what is committed is what the results give, and they say what was measured, losses and failures too."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import figures, plots, schedule_figures
from bench.charts import RED, log_ticks
from bench.figures import Figure
from bench.plots import FIGURES, PAGE, PLOTS, RESULTS, ROOT
from bench.svg import Drawing, ticks
from tests.accuracy import result_fixtures as fixtures

PEERS = json.loads((ROOT / RESULTS / "peers-tuning.json").read_text())
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{SVG}text")]


def inside(svg: str) -> bool:
    """Nothing is drawn outside of the picture."""
    root = ET.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for e in root.iter(f"{SVG}rect"):
        x, y = float(e.attrib.get("x", 0)), float(e.attrib.get("y", 0))
        if x < 0 or y < 0 or x + float(e.attrib["width"]) > width or y + float(e.attrib["height"]) > height:
            return False
    points = [(float(e.attrib[a]), float(e.attrib[b])) for tag, a, b in (("text", "x", "y"), ("circle", "cx", "cy")) for e in root.iter(SVG + tag)]
    return all(0 <= x <= width and 0 <= y <= height for x, y in points)


# ---- what is committed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.name)
def test_committed_docs_are_what_the_results_give(figure: Figure) -> None:
    if not (ROOT / RESULTS / figure.files[0]).exists():
        pytest.skip(f"{figure.files[0]} was not measured yet")
    text, picture = plots.place_text(figure, ROOT)
    places = {m[1]: m[0] for m in plots.PLACE.finditer((ROOT / PAGE).read_text()) for m in [(m[0], m[2])]}
    assert places[figure.name] == f"<!-- results: {figure.name} -->\n{text}<!-- end -->", "run python -m bench.plots"
    if picture is not None:
        assert (ROOT / PLOTS / f"{figure.name}.svg").read_text() == picture, "run python -m bench.plots"


def test_every_figure_has_a_place_and_every_picture_a_figure() -> None:
    assert sorted(m[2] for m in plots.PLACE.finditer((ROOT / PAGE).read_text())) == sorted(f.name for f in FIGURES)
    assert {p.stem for p in (ROOT / PLOTS).glob("*.svg")} <= {f.name for f in FIGURES if f.picture is not None}


# ---- writing them -----------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the page and the results, with all those that were not measured yet."""
    for folder in (RESULTS, PLOTS):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / PAGE, tmp_path / PAGE)
    for name in {f for figure in FIGURES for f in figure.files}:
        if (ROOT / RESULTS / name).exists():
            shutil.copy(ROOT / RESULTS / name, tmp_path / RESULTS / name)
    made = {"tuning": fixtures.tuning(), "any-size": fixtures.any_size(), "quality": fixtures.quality(), "fusion": fixtures.fusion()}
    for name, result in made.items():
        (tmp_path / RESULTS / f"{name}-h200.json").write_text(json.dumps(result))
    return tmp_path


def test_writing_is_idempotent_and_sees_what_is_stale(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(plots, "ROOT", project)
    (project / PLOTS / "old.svg").write_text("<svg/>")
    monkeypatch.setattr("sys.argv", ["plots", "--check"])
    assert plots.main() == 1 and "old.svg" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["plots"])
    assert plots.main() == 0 and not (project / PLOTS / "old.svg").exists()
    assert {p.stem for p in (project / PLOTS).glob("*.svg")} == {f.name for f in FIGURES if f.picture is not None}
    page = (project / PAGE).read_text()
    assert plots.stale(project) == [] and "Not measured yet" not in page and plots.main() == 0 and (project / PAGE).read_text() == page
    links = re.findall(r"\]\((plots/[^)]+)\)", page)
    assert len(links) == len(set(links)) == 6 and all((project / "docs" / link).exists() for link in links)
    (project / PAGE).write_text(page.replace("| 14.4 |", "| 13.4 |"))
    assert plots.stale(project) == ["docs/experiments.md"], "an edit by hand is seen"
    result = json.loads((project / RESULTS / "tuning-h200.json").read_text())
    result["rows"][0]["wall_s"] = 15.5
    (project / RESULTS / "tuning-h200.json").write_text(json.dumps(result))
    assert plots.stale(project) == ["docs/plots/tuning.svg", "docs/experiments.md"]


def test_what_is_not_measured_yet_names_its_command(project: Path) -> None:
    (project / RESULTS / "tuning-h200.json").unlink()
    text, picture = plots.place_text(next(f for f in FIGURES if f.name == "tuning"), project)
    assert picture is None and "python -m bench.tuning" in text and "tuning-h200.json" in text


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="its places are"):
        plots.fill("<!-- results: latency -->\n<!-- end -->\n", {"latency": "", "fusion": ""})


# ---- what the pictures say --------------------------------------------------------------------------------------------

PICTURES: dict[str, str | None] = {
    "tuning": schedule_figures.tuning_picture(fixtures.tuning(), PEERS),
    "any-size": schedule_figures.any_size_picture(fixtures.any_size()),
    "quality": schedule_figures.quality_picture(fixtures.quality()),
    "fusion": figures.fusion_picture(fixtures.fusion()),
    "counts": figures.fusion_picture(fixtures.fusion(device=False)),
    "latency": figures.latency_picture(json.loads((ROOT / RESULTS / "latency-h200.json").read_text())),
    "regret": schedule_figures.regret_picture(json.loads((ROOT / RESULTS / "spaces-h200.json").read_text())),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_whole_and_on_white(name: str) -> None:
    picture = PICTURES[name]
    assert picture is not None and inside(picture)
    first = next(ET.fromstring(picture).iter(f"{SVG}rect"))
    assert first.attrib["fill"] == "#ffffff", "readable in dark viewers"
    assert not re.search(r' (x|y|width|height|r)="\d+\.\d\d|nan|inf"|20\d\d-', picture), "no long numbers, no date"


def latency(**us: float | None) -> dict[str, Any]:
    rows = [{"model": "bert", "prec": "fp16", "mode": mode, "right": True, "live": True, "us": x} if x else
            {"model": "bert", "prec": "fp16", "mode": mode, "error": "no time left"} for mode, x in us.items()]
    return {"rows": rows}


def test_latency_shows_gains_losses_and_what_is_missing() -> None:
    gain = figures.latency_picture(latency(taskc=100.0, ort=150.0, torch=300.0))
    assert "100 (1.50×)" in texts(gain) and RED not in gain
    loss = figures.latency_picture(latency(taskc=100.0, ort=80.0, torch=300.0))
    assert "100 (0.80×)" in texts(loss) and RED in loss
    missing = figures.latency_picture(latency(taskc=100.0, ort=None, torch=None))
    assert {"100", "onnxruntime: no time left", "PyTorch: no time left"} <= set(texts(missing))
    assert "| 100.0 | no time left | no time left | – |" in figures.latency_table(latency(taskc=100.0, ort=None, torch=None))


def test_a_wrong_result_is_no_time() -> None:
    result = latency(taskc=100.0, ort=10.0, torch=300.0)
    result["rows"][1]["right"] = False
    assert {"100 (3.00×)", "onnxruntime: wrong result"} <= set(texts(figures.latency_picture(result)))
    assert "| wrong result | 300.0 | 3.00 |" in figures.latency_table(result)


def test_tuning_stands_beside_its_peers() -> None:
    said = texts(str(PICTURES["tuning"]))
    assert {"14.4 s: 31 problems, 309 candidates measured", "460 s", "229 s", "over 330 s, not finished", "202 s"} <= set(said)
    assert "41.0 s: 31 problems, 309 candidates measured, not complete" in said and not any("BERT" in t for t in said)
    table = schedule_figures.tuning_table(fixtures.tuning(), PEERS)
    assert "| BERT | float16 | no time left |" in table and "Hidet 460, PyTorch 229" in table and "PyTorch > 230" in table
    assert schedule_figures.tuning_picture({"rows": [{"model": "bert", "prec": "fp16", "error": "x"}]}, PEERS) is None


def test_any_size_shows_losses_and_leaves_out_what_is_wrong() -> None:
    picture, table = str(PICTURES["any-size"]), schedule_figures.any_size_table(fixtures.any_size())
    assert picture.count(RED) == 1 and "409 (0.71×)" in texts(picture) and not any("2041" in t or "2042" in t for t in texts(picture))
    assert "| 2041 | wrong result | – |" in table and "| 2042 | no time left | – |" in table


def test_quality_marks_the_tuned_schedule() -> None:
    result = fixtures.quality()
    said = texts(str(PICTURES["quality"]))
    assert f"tuned, the fastest of the 10 ranked first: {result['tuned_us']:.2f} µs" in said and any(t.startswith("ranked first") for t in said)
    assert str(PICTURES["quality"]).count("<circle") == 178
    assert "| 354 | 178 |" in schedule_figures.quality_table(result) and "| 80 % | 45 % | 20 % |" in schedule_figures.quality_table(result)


def test_quality_marks_one_schedule_once() -> None:
    result = fixtures.quality()
    said = texts(schedule_figures.quality_picture({**result, "first_us": result["tuned_us"]}))
    assert sum("ranked first" in t for t in said) == 1 and any("and the very first" in t for t in said)


def test_a_check_of_some_launches_says_so() -> None:
    rows = [{"model": "bert", "prec": "fp16", "tool": "racecheck", "status": "clean", "launches": 16},
            {"model": "bert", "prec": "fp16", "tool": "memcheck", "status": "errors"}]  # fmt: skip
    assert "| BERT | float16 | clean (the first 16 launches) | errors |" in figures.sanitizer_table({"rows": rows})


def test_an_early_launch_that_loses_is_red() -> None:
    result = fixtures.fusion()
    assert str(figures.fusion_picture(result)).count(RED) == 1
    result["rows"][0]["no_pdl_us"] = result["rows"][0]["us"] - 1
    assert str(figures.fusion_picture(result)).count(RED) == 2


def test_fusion_counts_without_a_gpu() -> None:
    assert "device time (µs)" in texts(str(PICTURES["fusion"])) and "device time (µs)" not in texts(str(PICTURES["counts"]))
    assert str(PICTURES["fusion"]).count(RED) == 1, "MobileNet-v2 became slower"
    table = figures.fusion_table(fixtures.fusion())
    assert "| BERT | float16 | 290 → 85 | 22 → 7 | 420.0 → 250.0 | 800.0 | 476.0 | 324.0 | 1.68 × | 1.134 × |" in table
    assert "| GPT-2 | float16 | no result |" in table
    assert "| BERT | float16 | 290 → 85 | 22 → 7 | 420.0 → 250.0 | – |" in figures.fusion_table(fixtures.fusion(device=False))


def test_regret_has_a_dot_a_kernel_and_series() -> None:
    rows = json.loads((ROOT / RESULTS / "spaces-h200.json").read_text())["regrets"]
    assert str(PICTURES["regret"]).count("<circle") == 2 * len(rows)
    assert schedule_figures.regret_picture({"spaces": []}) is None


# ---- drawing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("top", "want"), [(100.0, [0, 20, 40, 60, 80, 100]), (460.0, [0, 100, 200, 300, 400]), (0.7, [0, 0.2, 0.4, 0.6])])
def test_ticks_are_round(top: float, want: list[float]) -> None:
    assert ticks(top) == pytest.approx(want)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1000.0), (4.0, 70.0), (5.0, 9.0)])
def test_log_ticks_lie_inside(low: float, high: float) -> None:
    found = log_ticks(low, high)
    assert 4 <= len(found) <= 12 and low <= found[0] < found[-1] <= high


def test_text_is_escaped() -> None:
    d = Drawing(10, 10, 'a "quoted" <title>')
    d.text(1, 2, "a < b & c")
    assert texts(d.svg()) == ["a < b & c"] and ET.fromstring(d.svg()).attrib["aria-label"] == 'a "quoted" <title>'
