import io

import pytest

from pygsage.training.report import Report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _one_epoch(report: Report) -> None:
    report.line("a plan")
    report.start_epoch(0, 2, num_steps=4, first_step=1)
    for _ in range(3):
        report.step(0.5)
    report.end_epoch()
    report.line("epoch 1")


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    _one_epoch(Report(active=True))
    shown = terminal.getvalue()
    assert "epoch 1/2" in shown
    assert "1/4" in shown  # a resumed epoch begins where it was left
    assert shown.endswith("epoch 1\n")


def test_elsewhere_plain_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    _one_epoch(Report(active=True))
    assert capsys.readouterr().out == "a plan\nepoch 1\n"


def test_json_keeps_standard_output_free(capsys: pytest.CaptureFixture[str]) -> None:
    _one_epoch(Report(active=True, json=True))
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "a plan\nepoch 1\n"


@pytest.mark.parametrize("options", [{"active": False}, {"active": True, "quiet": True}])
def test_other_ranks_and_quiet_runs_say_nothing(options: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    _one_epoch(Report(**options))
    assert terminal.getvalue() == ""
