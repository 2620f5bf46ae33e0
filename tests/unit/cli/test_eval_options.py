from __future__ import annotations

import pytest

from hebblm.cli.eval import EvalConfig, changes_of, main


def test_the_options_of_the_adaptation_are_short_for_settings() -> None:
    config = EvalConfig(intra_domain="ptb", method="fast", set=["hebb.beta=0.5"])
    assert changes_of(config) == ["hebb.beta=0.5", "mbpa.method=fast"]
    assert changes_of(EvalConfig(intra_domain="ptb", set=["mbpa.method=exact"])) == ["mbpa.method=exact"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "exact", "--set", "mbpa.method=fast"], "--method exact and --set mbpa.method"),
        (["--method", "exact", "--set", "mbpa.method=exact"], "use one"),
        (["--method", "quick"], "method"),
        (["--forgetting"], "--forgetting compares two domains, and ptb is the only one"),
        (["--forgetting-tokens", "0"], "--forgetting-tokens 0 must be at least 1"),
        (["--readings", "--log-samples", "--output-path", "x"], "leave --log-samples out"),
    ],
)
def test_contradictions_and_bad_values_are_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--intra-domain", "ptb", *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
