"""Nothing of forked ranks remains, however the process that made them ends."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SECONDS = 600

SCRIPT = """
    import signal, sys, time
    from fixtures.ranks.forked import ForkedWorld
    from tests.ranks import programs

    # A shell has its background jobs, and what these start, ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    world = ForkedWorld(3, timeout=1000)
    world.run(programs.all_collectives, ((0, 1), (2,)), programs.torch.int64)
    print(*world.pids, flush=True)
    match sys.argv[1]:
        case "failure":
            world.run(programs.fail, "be killed")
        case "in a call":
            print("calling", flush=True)
            world.run(programs.fail, "loop over whatever is raised")
        case "idle":
            print("calling", flush=True)
            time.sleep(1000)
        case "resting":
            world.rest()
        case "closed":
            world.close()
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + _SECONDS
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.02)


def marked(marker: str) -> list[int]:
    """Processes that inherited ``marker`` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A temporary directory of its own, and proof that all is clean in the end."""
    # Of a short name, as that of a socket has a limit.
    with tempfile.TemporaryDirectory() as temporary:
        yield {**os.environ, "TMPDIR": temporary, "RANKS_TEST": str(tmp_path)}
        assert_gone(marked(f"RANKS_TEST={tmp_path}"))
        assert not os.listdir(temporary)


def test_a_long_name_of_the_temporary_directory_is_told(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    (tmp_path / "nothing.py").touch()
    process = start(IMPORTS, {**os.environ, "TMPDIR": str(long)}, str(tmp_path), "nothing")
    output, errors = process.communicate(timeout=_SECONDS)
    said = f"no rank can be forked, with temporary files in {long}: AF_UNIX path too long"
    assert output.splitlines() == [said] * 2, errors


def start(script: str, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return [int(pid) for pid in line.split()]


@pytest.mark.parametrize("how", ["closed", "forgotten", "resting", "failure"])
def test_after_the_end(environment: dict[str, str], how: str) -> None:
    process = start(SCRIPT, environment, how)
    pids = read_pids(process)
    _, errors = process.communicate(timeout=_SECONDS)
    assert process.returncode == (1 if how == "failure" else 0)
    assert ("RankDied" in errors) == bool(errors) == (how == "failure")
    assert_gone(pids)


@pytest.mark.parametrize("how", ["in a call", "idle"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_after_a_signal(environment: dict[str, str], how: str, number: signal.Signals) -> None:
    process = start(SCRIPT, environment, how)
    pids = read_pids(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "calling\n"
    # As the terminal does on Ctrl-C; the others hit pytest alone.
    os.killpg(process.pid, number) if number is signal.SIGINT else process.send_signal(number)
    process.communicate(timeout=_SECONDS)
    assert process.returncode == -number
    assert_gone(pids)


def test_after_the_death_of_a_pytest_worker(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import os
            from fixtures.ranks.forked import ForkedWorld
            from tests.ranks import programs

            def test_killed():
                ForkedWorld(3).run(programs.my_rank)
                os.kill(os.getpid(), 9)

            def test_not_killed():
                world = ForkedWorld(2)
                assert world.run(programs.my_rank) == [(0, 2), (1, 2)]
                world.close()
            """
        )
    )
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n2", "-p", "no:cacheprovider", "--rootdir",
         str(tmp_path), str(tmp_path / "test_it.py"), "-c", os.devnull, "--basetemp",
         str(tmp_path / "base")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )  # fmt: skip
    assert "crashed while running 'test_it.py::test_killed'" in result.stdout, result.stdout
    assert "1 failed, 1 passed" in result.stdout


IMPORTS = """
    import sys
    from fixtures.ranks.errors import CannotStart
    from fixtures.ranks.forked import ForkedWorld
    from fixtures.ranks.pool import Worlds

    sys.path.append(sys.argv[1])
    worlds = Worlds(lambda size: ForkedWorld(size, ("torch", sys.argv[2])))
    for size in (2, 3):
        try:
            worlds.get(size)
        except CannotStart as error:
            print(str(error).splitlines()[0])
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "raise ImportError('it is broken')",
            "importing broken for the ranks failed: ImportError: it is broken",
        ),
        (
            "raise SystemExit(3)",
            "importing broken for the ranks failed: SystemExit: 3",
        ),
        (
            "import os; os.abort()",
            "the process that imports torch, broken ended before it was ready",
        ),
    ],
)
def test_what_cannot_be_imported_is_tried_once(
    environment: dict[str, str], tmp_path: Path, body: str, said: str
) -> None:
    tried = tmp_path / "tried"
    (tmp_path / "broken.py").write_text(f"open({str(tried)!r}, 'a').write('x')\n{body}\n")
    process = start(IMPORTS, environment, str(tmp_path), "broken")
    output, errors = process.communicate(timeout=_SECONDS)
    assert output.splitlines() == [said] * 2, errors
    assert tried.read_text() == "x"
