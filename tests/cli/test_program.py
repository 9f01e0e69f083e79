"""The program as a whole: help, versions, exit codes, one line for every error."""

from __future__ import annotations

import bz2
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from geoveil import Campaign, __version__, load_tally
from geoveil.cli.console import Console
from geoveil.cli.program import COMMANDS, Program, program

PROMISE = ["--mechanism", "planar-geometric", "--epsilon-per-km", "2", "--box", "48.8,2.2,48.9,2.4"]


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, list(arguments), input=stdin)


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "geoveil", *arguments], **options)


@pytest.fixture
def many_rows(tmp_path: Path) -> Path:
    path = tmp_path / "many.csv"
    path.write_text("lat,lng\n" + "48.8512345,2.3512345\n" * 300_000)
    return path


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


def test_no_line_of_the_list_of_commands_is_cut_off() -> None:
    listed = run("--help").stdout.partition("Commands:")[2]
    assert "..." not in listed
    assert len(listed.split("\n")) == len(COMMANDS) + 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["tally", "folder", *PROMISE], "folder must be a file; it is a folder"),
        (["simulate", "folder.csv"], "folder.csv must be a file; it is a folder"),
        (["audit", "folder"], "folder must be a file; it is a folder"),
        (["hexagons", "folder", "--resolution", "8"], "folder must be a file; it is a folder"),
        (["tally", "sixteen.csv", *PROMISE], "must be CSV text in UTF-8; save it again as that"),
        (["tally", "packed.csv", *PROMISE], "packed.csv is packed, or a spreadsheet; unpack it"),
        (["tally", "places.csv.bz2", *PROMISE], "must be unpacked, or packed by gzip; unpack it"),
        (["tally", "german.csv", *PROMISE], "which one it is with --lat: it has Breite, Länge"),
        (["audit", "other.json"], "geoveil design writes one"),
        (["estimate", "other.json"], "geoveil tally writes one"),
        (["flows", "other.json"], "geoveil tally --trips writes one"),
    ],
)
def test_files_of_another_kind_are_one_line_that_says_what_to_do(
    asked: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "folder.csv"):
        Path(folder).mkdir()
    Path("sixteen.csv").write_text("lat,lng\n48.85,2.35\n", encoding="utf-16")
    Path("packed.csv").write_bytes(bz2.compress(b"lat,lng\n48.85,2.35\n"))
    Path("german.csv").write_text("Breite,Länge\n48.85,2.35\n", encoding="utf-8")
    Path("other.json").write_text("{}")
    target = {"audit": [], "simulate": ["--epsilon-per-km", "2", "--rounds", "1"]}
    result = run(*asked, *target.get(asked[0], ["-o", "out.json"]))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


LOADED = """
import sys
from geoveil.cli import main
try:
    main()
except SystemExit:
    sys.stderr.write(" ".join(sys.modules))
"""
COMPLETING = {"_GEOVEIL_COMPLETE": "bash_complete", "COMP_WORDS": "geoveil ob", "COMP_CWORD": "1"}


def loaded(*arguments: str, **variables: str) -> set[str]:
    """The modules that a run of the program has loaded when it ends."""
    finished = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], env={**os.environ, **variables},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert finished.stdout
    return set(finished.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [([], {}), (["--help"], {}), (["--version"], {}), ([], COMPLETING)],
    ids=["nothing", "help", "version", "completion"],
)
def test_help_and_completion_load_click_and_no_command(
    arguments: list[str], variables: dict[str, str]
) -> None:
    modules = loaded(*arguments, **variables)
    assert {name for name in modules if name.startswith("geoveil.")} == {
        "geoveil.cli", "geoveil.cli.program", "geoveil.errors",
    }  # fmt: skip
    assert "click" in modules
    assert not modules & {"numpy", "scipy", "rich", "pyarrow", "msgspec", "starlette"}


def test_the_script_for_a_shell_loads_no_numerics() -> None:
    assert not loaded("completion", "bash") & {"numpy", "scipy", "pyarrow", "msgspec", "starlette"}


def test_without_arguments_it_helps() -> None:
    result = run()
    assert (result.exit_code, result.stdout) == (0, run("--help").stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_machine_output(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert name == "completion" or "--json" in result.stdout


def test_version() -> None:
    assert run("--version").stdout == f"geoveil {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["obfuscate"],
        ["obfuscate", "in.csv"],
        ["obfuscate", "in.csv", "-o", "out.csv", "--nonsense"],
        ["obfuscate", "in.csv", "-o", "out.csv", "--seed", "x"],
        ["audit"],
        ["audit", "missing.json"],
        ["benchmark", "nonsense"],
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_two(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("geoveil: error: ")
    assert result.stderr.count("\n") == 1


def test_a_fault_of_the_program_shows_no_trace_and_no_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from geoveil.cli import choice

    def fail(*_: object) -> None:
        raise RuntimeError("secret 48.8512345")

    monkeypatch.setattr(choice.MechanismChoice, "parse", fail)
    result = run("obfuscate", "in.csv", "-o", "out.csv", "--epsilon-per-km", "2")
    assert result.exit_code == 70
    assert "48.85" not in result.output
    assert result.stderr.count("\n") == 1
    with_trace = run("obfuscate", "in.csv", "-o", "out.csv", "--epsilon-per-km", "2", "--debug")
    assert isinstance(with_trace.exception, RuntimeError)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_GEOVEIL_COMPLETE" in result.stdout


def test_completion_offers_the_commands(tmp_path: Path) -> None:
    variables = {
        "_GEOVEIL_COMPLETE": "bash_complete",
        "COMP_WORDS": "geoveil ob",
        "COMP_CWORD": "1",
    }
    finished = subprocess.run(
        [sys.executable, "-m", "geoveil"], env={**os.environ, **variables}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "obfuscate" in finished.stdout
    assert "audit" not in finished.stdout


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('no', name='click')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    finished = subprocess.run(
        [sys.executable, "-m", "geoveil"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 2
    assert finished.stderr == (
        "geoveil: error: the command line needs click and rich; install geoveil[cli]\n"
    )


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes are those of POSIX")
@pytest.mark.parametrize(
    ("number", "code"),
    [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 143)],
)
@pytest.mark.usefixtures("heard_signals")
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, number: str, code: int) -> None:
    os.mkfifo(tmp_path / "slow.csv")
    target = tmp_path / "noisy.csv"
    process = start(
        "obfuscate", str(tmp_path / "slow.csv"), "-o", str(target), *PROMISE, stderr=subprocess.PIPE
    )  # fmt: skip
    with process, (tmp_path / "slow.csv").open("wb", buffering=0) as pipe:
        pipe.write(b"lat,lng\n")
        while not list(tmp_path.glob(".noisy.csv.*.partial")):
            pipe.write(b"48.85,2.35\n" * 1000)
            assert process.poll() is None
        process.send_signal(signal.Signals[number])
        assert process.wait(timeout=60) == code
    assert [each.name for each in tmp_path.iterdir()] == ["slow.csv"]


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes are those of POSIX")
@pytest.mark.parametrize(
    ("source", "target", "closed", "code", "said"),
    [
        ("places.csv", "noisy.csv", ">&- 2>&- <&-", 0, ""),
        ("places.csv", "-", ">&-", 2, "standard output must be open"),
        ("-", "noisy.csv", "<&-", 2, "standard input must be open"),
    ],
)
def test_streams_that_are_closed(
    tmp_path: Path, source: str, target: str, closed: str, code: int, said: str
) -> None:
    (tmp_path / "places.csv").write_text("lat,lng\n48.85,2.35\n")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "geoveil", "obfuscate",
         source, "-o", target, *PROMISE],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
    written = (tmp_path / "noisy.csv").exists()
    assert written == (code == 0)
    assert not written or (tmp_path / "noisy.csv").read_text().startswith("cell,lat,lng")


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes are those of POSIX")
def test_a_reader_that_goes_away_is_no_error(many_rows: Path) -> None:
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start("obfuscate", str(many_rows), "-o", "-", *PROMISE, **both) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"cell,lat,lng,geoveil\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes are those of POSIX")
def test_a_pipe_with_a_name_is_read_once(tmp_path: Path) -> None:
    fifo, rows = tmp_path / "places.csv", b"lat,lng\n" + 500 * b"48.85,2.35\n"
    os.mkfifo(fifo)
    refused = run("obfuscate", str(fifo), "-o", str(tmp_path / "n.csv"), "--epsilon-per-km", "2")
    assert "--box must be given for a pipe" in refused.stderr
    target = tmp_path / "tally.json"
    with start("tally", str(fifo), "-o", str(target), *PROMISE, "--processes", "2") as process:
        fifo.write_bytes(rows)
        assert process.wait(timeout=120) == 0
    assert load_tally(target).total == 500


TABLE = "cell,lat,lng,share\n0,48.83,2.28,0.5\n1,48.84,2.29,0.5\n"


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("matplotlib", "estimate tally.json -o e.csv --plot m.png", "plot"),
        ("matplotlib", "evaluate table.csv --truth table.csv --plot m.png", "plot"),
        ("matplotlib", "design --prior table.csv --epsilon-per-km 2 --advise --plot m.png", "plot"),
        ("matplotlib", "simulate --epsilon-per-km 2 --map m.png", "plot"),
        ("matplotlib", "release a.csv --prior b.csv --multiplier 1 -o c.csv --plot m.png", "plot"),
        ("matplotlib", "demo --once --output out", "plot"),
        ("ot", "evaluate table.csv --truth nowhere.csv", "transport"),
        ("ot", "design --prior table.csv --epsilon-per-km 2 --advise", "transport"),
        ("ot", "simulate --epsilon-per-km 2 --people 100", "transport"),
        ("ot", "demo --once --output out", "transport"),
        ("ot", "reproduce privic --out out", "transport"),
        ("pyarrow", "estimate tally.json -o e.parquet", "cli"),
        ("pyarrow", "obfuscate table.csv -o n.csv --epsilon-per-km 2", "cli"),
        ("uvicorn", "demo --once --output out", "server"),
    ],
)
def test_a_missing_extra_is_said_before_the_work(
    module: str, command: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that do not exist are not even looked for, nothing is designed, and nothing is written."""
    monkeypatch.setattr(Campaign, "_following", lambda *_: pytest.fail("a mechanism is designed"))
    (tmp_path / "table.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    result = CliRunner().invoke(program, command.split())
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert f"install geoveil[{extra}]" in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]


def test_a_module_of_an_extra_that_is_missing_is_no_fault_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*arguments: Any) -> None:
        raise ModuleNotFoundError("No module named 'msgspec'", name="msgspec.json")

    monkeypatch.setattr(Program, "get_command", fails)
    result = CliRunner().invoke(program, ["serve"])
    assert (result.exit_code, result.stderr) == (
        2,
        "geoveil: error: this command needs msgspec; install geoveil[server]\n",
    )


def test_what_was_said_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("any")):
        for _ in range(2):
            Console().warn("the same")
            Console().note("another")
    said = capsys.readouterr().err.splitlines()
    assert [each.rpartition(": ")[2] for each in said] == ["the same", "another"]


@pytest.mark.parametrize(("wanted", "coloured"), [("", True), ("1", False)])
def test_warnings_have_no_colour_where_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: str, coloured: bool
) -> None:
    @click.command()
    def command() -> None:
        Console().warn("beware")

    monkeypatch.setenv("NO_COLOR", wanted)
    assert ("\x1b[33m" in CliRunner().invoke(command, color=True).stderr) is coloured
