"""The README's numbers are the benchmarks' own."""

from __future__ import annotations

import sys

import pytest

from bench import readme_numbers


def test_readme_is_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["readme_numbers", "--check"])
    assert readme_numbers.main() == 0, capsys.readouterr().out
