"""The kept report."""

from pathlib import Path

from benchmarks import report
from benchmarks.table import ROWS, Outcome


def test_a_report_keeps_the_rows_it_did_not_measure(tmp_path: Path) -> None:
    """A long report can be made row by row; each row carries its own date and machine."""
    path = tmp_path / "RESULTS.md"
    for number, machine in ((14, "one"), (11, "two"), (14, "three")):
        outcome = Outcome(row=ROWS[number], seen={})
        report.keep(outcome, (), {"machine": machine}, quick=False, path=path)
    text = path.read_text()
    assert text.startswith("# Results")
    assert text.index("## Row 11") < text.index("## Row 14")
    assert "machine: two" in text
    assert "machine: three" in text
    assert "machine: one" not in text


def test_a_report_does_not_grow_by_being_written_again(tmp_path: Path) -> None:
    """Writing the same row twice leaves one section."""
    path = tmp_path / "RESULTS.md"
    outcome = Outcome(row=ROWS[11], seen={})
    lengths = set()
    for _ in range(3):
        report.keep(outcome, (), {"machine": "m"}, quick=True, path=path)
        lengths.add(len(path.read_text().splitlines()))
    assert len(lengths) == 1
