"""Nothing of a world remains, however the process that made it ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SECONDS = 60

SCRIPT = """
    import os, signal, sys, time
    from fixtures.worlds.nursery import zygote_for
    from fixtures.worlds.processes import ProcessWorld
    from tests.worlds import programs

    # A shell's background jobs, and what they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def main(how):
        world = ProcessWorld(3, timeout=1000)
        world.run(programs.all_collectives, ((0, 1), (2,)), programs.torch.int64)
        print(*world.pids, zygote_for(("torch",)).pid, flush=True)
        if how == "failure":
            world.run(programs.fail, "kill", (1,))
        if how == "in a call":
            print("calling", flush=True)
            world.run(programs.fail, "loop", (1,))
        if how == "idle":
            print("calling", flush=True)
            time.sleep(1000)
        if how == "closed":
            world.close()

    main(sys.argv[1])
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
    while [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"still running: {[p for p in pids if alive(p)]}"
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
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    marker = f"WORLDS_TEST={tmp_path}"
    shared = set(os.listdir("/dev/shm"))
    yield {**os.environ, "TMPDIR": str(temporary), "WORLDS_TEST": str(tmp_path)}
    assert_gone(marked(marker))
    assert not list(temporary.iterdir())
    assert not {name for name in set(os.listdir("/dev/shm")) - shared if name.startswith("torch")}


def start(script: str, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
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


@pytest.mark.parametrize("how", ["closed", "forgotten", "failure"])
def test_after_the_end(environment: dict[str, str], how: str) -> None:
    process = start(SCRIPT, environment, how)
    pids = read_pids(process)
    _, errors = process.communicate(timeout=_SECONDS)
    assert process.returncode == (1 if how == "failure" else 0)
    assert ("RankDied" in errors) == (how == "failure")
    assert bool(errors) == (how == "failure")
    assert not [pid for pid in pids if alive(pid)]


@pytest.mark.parametrize("how", ["in a call", "idle"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_after_a_signal(environment: dict[str, str], how: str, number: signal.Signals) -> None:
    process = start(SCRIPT, environment, how)
    pids = read_pids(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "calling\n"
    time.sleep(0.2)
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # As the terminal does on Ctrl-C.
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=_SECONDS)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in errors) == (number is signal.SIGINT)
    assert_gone(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize(
    ("whose", "session"), [("caller", False), ("caller", True), ("zygote", False)]
)
def test_what_ranks_have_started(
    environment: dict[str, str], whose: str, session: bool, number: signal.Signals
) -> None:
    script = """
        import sys
        from fixtures.worlds.nursery import zygote_for
        from fixtures.worlds.processes import ProcessWorld
        from tests.worlds import programs

        world = ProcessWorld(3)
        started = world.run(programs.starts_a_program, session=bool(sys.argv[1:]))
        print(*started, *world.pids, zygote_for(("torch",)).pid, flush=True)
        sys.stdin.read()
    """
    process = start(script, environment, *(["session"] if session else []))
    pids = read_pids(process)
    assert all(alive(pid) for pid in pids)
    os.kill(process.pid if whose == "caller" else pids[-1], number)
    if whose == "caller" and number is signal.SIGSTOP:
        process.send_signal(signal.SIGKILL)
    process.communicate(timeout=_SECONDS)
    assert_gone(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_the_whole_group(environment: dict[str, str], number: signal.Signals) -> None:
    script = """
        import sys
        from fixtures.worlds.processes import ProcessWorld
        from tests.worlds import programs

        world = ProcessWorld(2)
        print(*world.run(programs.starts_a_program, session=True), *world.pids, flush=True)
        sys.stdin.read()
    """
    process = start(script, environment)
    pids = read_pids(process)
    os.killpg(process.pid, number)
    process.communicate(timeout=_SECONDS)
    assert_gone(pids)


def test_while_the_zygote_imports(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        "time.sleep(1000)\n"
    )
    script = """
        import sys
        from fixtures.worlds.processes import ProcessWorld

        sys.path.append(sys.argv[1])
        print("0", flush=True)
        ProcessWorld(2, ("slow_to_import",))
    """
    process = start(script, environment, str(tmp_path))
    read_pids(process)
    deadline = time.monotonic() + _SECONDS
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=_SECONDS)


def test_after_the_death_of_a_pytest_worker(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import os, signal
            from fixtures.worlds.processes import ProcessWorld
            from tests.worlds import programs

            def test_killed():
                ProcessWorld(3).run(programs.my_rank)
                os.kill(os.getpid(), signal.SIGKILL)

            def test_not_killed():
                world = ProcessWorld(2)
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
        timeout=300,
    )  # fmt: skip
    assert "crashed while running 'test_it.py::test_killed'" in result.stdout, result.stdout
    assert "1 failed, 1 passed" in result.stdout


def test_nothing_listens_but_on_loopback(environment: dict[str, str]) -> None:
    process = start(SCRIPT, environment, "idle")
    pids = read_pids(process)
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(fd)
            if target.startswith("socket:"):
                inodes.add(target.removeprefix("socket:[").removesuffix("]"))
            assert not target.startswith(("/tmp", environment["TMPDIR"]))
    listening = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pids[0]}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening[fields[9]] = fields[1].split(":")[0]
    assert listening, "gloo was expected to listen"
    assert set(listening.values()) == {"0100007F"}
    process.kill()
    process.communicate()
