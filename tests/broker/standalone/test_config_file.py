"""Pulsar's configuration file, and the environment variables that are written into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.broker.standalone.config_file import main, parse_config, settings_in, with_settings

FILE = "# brokerDeduplicationEnabled=true\n\nclusterName=standalone\n maxMessageSize = 100\nwebServicePort=\n"


def test_the_last_value_of_a_setting_counts_and_comments_do_not() -> None:
    assert parse_config(FILE + "clusterName=other\nurl=a=b\n") == {
        "clusterName": "other",
        "maxMessageSize": "100",
        "webServicePort": "",
        "url": "a=b",
    }


@pytest.mark.parametrize("line", ["clusterName", "=value", "{"])
def test_a_line_that_is_no_setting_is_an_error_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: .* is not name=value"):
        parse_config(f"clusterName=a\n{line}\n")


def test_variables_replace_settings_in_place_and_new_ones_are_added() -> None:
    environment = {"PULSAR_PREFIX_maxMessageSize": "7", "PULSAR_PREFIX_managedLedgerX": "1", "PATH": "/bin"}
    settings = settings_in(environment, {"clusterName", "maxMessageSize"})
    text = with_settings(FILE, settings)
    assert text == FILE.replace(" maxMessageSize = 100", "maxMessageSize=7") + "managedLedgerX=1\n"
    assert with_settings(text, settings) == text


def test_a_variable_without_prefix_counts_if_the_setting_is_known_and_one_with_prefix_outranks_it() -> None:
    environment = {
        "clusterName": "plain",
        "HOME": "/",
        "webServicePort": "1",
        "PULSAR_PREFIX_webServicePort": "2",
    }
    assert settings_in(environment, {"clusterName", "webServicePort"}) == {
        "clusterName": "plain",
        "webServicePort": "2",
    }


@pytest.mark.parametrize(
    ("name", "value"), [("clusterName", "a\nauthenticationEnabled=false"), ("a\u2028b", "c"), ("a=b", "c")]
)
def test_a_variable_adds_one_setting_at_most(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="must be one line"):
        settings_in({f"PULSAR_PREFIX_{name}": value}, ())


def test_the_script_writes_its_environment_into_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "standalone.conf"
    file.write_text("managedLedgerX=1\n")
    monkeypatch.setenv("PULSAR_PREFIX_clusterName", "tc")
    monkeypatch.setenv("managedLedgerX", "2")
    assert main([str(file)]) == 0
    assert file.read_text() == "managedLedgerX=2\nclusterName=tc\n"
    broken = tmp_path / "broken.conf"
    for content, problem in ((b"\xff", "can't decode"), (b"x", "line 1: 'x' is not name=value")):
        broken.write_bytes(content)
        assert main([str(broken)]) == 2
        assert broken.read_bytes() == content
        printed = capsys.readouterr().err
        assert printed.startswith(f"geoemu: {broken}: ")
        assert problem in printed
    monkeypatch.setenv("PULSAR_PREFIX_clusterName", "\udcff")
    assert main([str(file)]) == 2
    assert file.read_text() == "managedLedgerX=2\nclusterName=tc\n"
    assert main([str(tmp_path / "missing.conf")]) == main([]) == 2
    assert "missing.conf" in capsys.readouterr().err
