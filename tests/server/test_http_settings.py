"""Settings: one table, four sources in order, nothing unknown, no secret shown, all documented."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from geoveil.cli.program import program
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.server import run
from geoveil.server.problem import Problem
from geoveil.server.run import Started
from geoveil.server.settings import SETTINGS, Settings, Tokens, load
from store.memory import MemoryStore

ROOT = Path(__file__).resolve().parents[2]
SECRET = "this-is-a-secret-token"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "geoveil.toml"
    path.write_text('port = 3\nhost = "file"\nlog_level = "error"\n')
    return path


def test_flags_win_over_environment_over_file_over_defaults(file: Path) -> None:
    made = load(
        flags={"port": 1, "host": None},
        environment={"GEOVEIL_PORT": "2", "GEOVEIL_HOST": "environment", "HOME": "/"},
        file=file,
    )
    assert (made.port, made.host, made.log_level) == (1, "environment", "error")
    assert made.database == Settings().database


@pytest.mark.parametrize("word", ["true", "1", "Yes", "on"])
def test_words_for_true(word: str) -> None:
    assert load(environment={"GEOVEIL_TRUSTED_PROXY": word}).trusted_proxy is True


def test_unknown_names_are_refused_with_the_list(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("prot = 1")
    for given in ({"file": wrong}, {"environment": {"GEOVEIL_PROT": "1"}}):
        with pytest.raises(InvalidInput, match="prot") as found:
            load(**given)
        assert all(each.name in str(found.value) for each in SETTINGS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PORT", "x"), ("PORT", "-1"), ("PORT", "70000"), ("TICK_S", "0"), ("TICK_S", "nan"),
        ("PROCESSES", "2"), ("LOG_LEVEL", "loud"), ("TRUSTED_PROXY", "maybe"), ("BASE_URL", "ftp://x"),
        ("BASE_URL", "https://"), ("BASE_URL", "https://x/?y"), ("BASE_URL", "https://me:secret@x"),
        ("HOST", ""),
    ],
)  # fmt: skip
def test_wrong_values_are_one_sentence(name: str, text: str) -> None:
    with pytest.raises(InvalidInput) as found:
        load(environment={f"GEOVEIL_{name}": text})
    assert name.lower() in str(found.value)


@pytest.mark.parametrize(
    "text", ['port = "8000"', "port = true", "port = 8000.0", "port = [1]", "port"]
)
def test_a_file_has_the_types_of_the_table(tmp_path: Path, text: str) -> None:
    path = tmp_path / "geoveil.toml"
    path.write_text(text)
    with pytest.raises((InvalidInput, InvalidFile)):
        load(file=path)


def test_a_file_may_begin_with_the_mark_that_windows_puts_there(tmp_path: Path) -> None:
    path = tmp_path / "geoveil.toml"
    path.write_bytes(b"\xef\xbb\xbfport = 3\r\n")
    assert load(file=path).port == 3


def test_a_host_that_can_be_no_name_is_refused_in_words() -> None:
    with pytest.raises(InvalidInput, match="must be free to listen on: host name must not"):
        run.bind(Settings(host="a\0b", port=0))
    gc.collect()  # what was left open warns


def test_several_processes_only_with_postgresql() -> None:
    assert Settings(processes=2, database="postgresql:///geoveil").processes == 2
    with pytest.raises(InvalidInput, match="PostgreSQL"):
        Settings(processes=2)


KUBERNETES = {
    "GEOVEIL_PORT": "tcp://10.0.0.1:8000",
    "GEOVEIL_SERVICE_HOST": "10.0.0.1",
    "GEOVEIL_SERVICE_PORT": "8000",
    "GEOVEIL_SERVICE_PORT_HTTP": "8000",
    "GEOVEIL_PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "GEOVEIL_PORT_8000_TCP_PROTO": "tcp",
    "GEOVEIL_PORT_8000_TCP_PORT": "8000",
    "GEOVEIL_PORT_8000_TCP_ADDR": "10.0.0.1",
    "GEOVEIL_DATABASE_PORT": "tcp://10.0.0.2:5432",
    "GEOVEIL_DATABASE_SERVICE_HOST": "10.0.0.2",
    "GEOVEIL_DATABASE_PORT_5432_TCP": "tcp://10.0.0.2:5432",
}
"""What a pod finds where services are called ``geoveil`` and ``geoveil-database``."""


def test_variables_of_kubernetes_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(environment=KUBERNETES) == Settings()
    assert load(environment=KUBERNETES | {"GEOVEIL_PORT": "80"}).port == 80
    for name, text in KUBERNETES.items():
        assert load(environment={name: text}) == Settings()
    monkeypatch.setattr(
        run, "serve", lambda settings, announce: announce(Started("u", "s", None, pages=True))
    )
    told = CliRunner().invoke(program, ["serve"], env=KUBERNETES)
    assert (told.exit_code, told.stderr) == (0, "")
    assert "GEOVEIL_PORT, " in told.stdout
    assert "set by Kubernetes" in told.stdout


@pytest.mark.parametrize(
    "name", ["GEOVEIL_SERVICE", "GEOVEIL_PORTS", "GEOVEIL_PORT_X_TCP", "GEOVEIL_TCP"]
)
def test_what_only_resembles_them_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="environment variable"):
        load(environment={name: "tcp://10.0.0.1:8000"})


def test_a_slash_behind_the_address_is_not_shown_twice() -> None:
    settings = Settings(base_url="https://city.example/maps/")
    assert run._started(settings, MemoryStore(), None).url == "https://city.example/maps"


def test_a_secret_is_never_shown() -> None:
    made = load(environment={"GEOVEIL_OPERATOR_TOKEN": SECRET})
    assert made.operator_token == SECRET
    assert SECRET not in repr(made)
    with pytest.raises(InvalidInput) as found:
        load(environment={"GEOVEIL_OPERATOR_TOKEN": "short"})
    assert "short" not in str(found.value).replace("shortest", "")
    help_text = CliRunner().invoke(
        program, ["serve", "--help"], env={"GEOVEIL_OPERATOR_TOKEN": SECRET}
    )
    assert SECRET not in help_text.output


@pytest.mark.parametrize(
    "token",
    [
        SECRET + " ", " " + SECRET, SECRET + "\n", SECRET + "\t", "pässwörter-sind-lang", "x" * 1025,
        "x" * 15, "this is\na secret token", "this is a\x7fsecret token", " " * 20,
    ],
    ids=lambda token: repr(token[-24:]),
)  # fmt: skip
def test_a_token_that_no_header_could_bring_is_refused(token: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="16 to 1024 printable ASCII") as found:
        load(environment={"GEOVEIL_OPERATOR_TOKEN": token})
    assert token not in str(found.value)
    result = CliRunner().invoke(
        program,
        ["serve", "--port=0", f"--database=sqlite:///{tmp_path}/x.db"],
        env={"GEOVEIL_OPERATOR_TOKEN": token},
    )
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("token", ["x" * 16, "x" * 1024, 'a token: with spaces, "quotes" ~'])
def test_a_token_that_is_taken_can_be_used(token: str) -> None:
    tokens = Tokens(MemoryStore())
    assert (
        tokens.prepare(load(environment={"GEOVEIL_OPERATOR_TOKEN": token}).operator_token) is None
    )
    tokens.check(f"Bearer {token}")
    tokens.check(f"bearer  {token} ")
    with pytest.raises(Problem):
        tokens.check(f"Bearer {token}x")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_every_setting_is_a_flag_and_stands_in_the_documentation(setting) -> None:
    help_text = CliRunner().invoke(program, ["serve", "--help"]).output
    assert setting.flag in help_text
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    default = (
        ""
        if setting.default == ""
        else f"`{str(setting.default).lower() if setting.type is bool else setting.default}`"
    )
    assert f"| `{setting.name}` | {default} | {setting.help} |" in page


def test_wrong_settings_end_the_command_with_one_line() -> None:
    result = CliRunner().invoke(program, ["serve"], env={"GEOVEIL_PORT": "x"})
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_an_address_that_is_taken_or_a_folder_that_is_missing_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(
            program, ["serve", f"--port={port}", f"--database={tmp_path}/x.db"]
        )
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "--port" in result.stderr
    result = CliRunner().invoke(
        program, ["serve", "--port=0", f"--database=sqlite:///{tmp_path}/none/x.db"]
    )
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    gc.collect()  # what was left open warns
