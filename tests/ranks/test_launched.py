"""Two torchrun agents on this machine stand for two nodes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fixtures.ranks.launched import launched_world

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(agent: list[str], *arguments: str, timeout: float = 60) -> subprocess.Popen[str]:
    """One agent, rank 0 of which runs pytest."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", *agent),
        *("-m", "fixtures.ranks.launched", "-q", "-p", "no:cacheprovider", *arguments),
    ]
    settings = {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "RANKS_TIMEOUT": str(timeout),
    }
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def on_two_agents(rendezvous: str, *arguments: str, timeout: float = 300) -> list[str]:
    """Outputs of two agents of two ranks each, rank 0 of which ran pytest with success."""
    port = free_port()
    agents = []
    for node in range(2):
        where = (
            ["--master-addr", "127.0.0.1", "--master-port", str(port)]
            if rendezvous == "static"
            else ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                  "--rdzv-conf", f"is_host={int(node == 0)}", "--local-addr", "127.0.0.1"]
        )  # fmt: skip
        agent = ["--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(node), *where]
        agents.append(launch(agent, *arguments, timeout=timeout))
    outputs = [agent.communicate(timeout=600)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(outputs)
    return outputs


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_two_agents(rendezvous: str) -> None:
    outputs = on_two_agents(rendezvous, "tests/ranks/launched_checks.py")
    assert sum("13 passed" in output for output in outputs) == 1, "\n".join(outputs)


def test_ranks_of_two_agents_that_do_not_come_to_an_end() -> None:
    outputs = on_two_agents("static", "tests/ranks/launched_endless_checks.py", timeout=4)
    assert sum("4 passed" in output for output in outputs) == 1, "\n".join(outputs)


def test_a_property_on_two_agents() -> None:
    """On layouts of the ranks that there are, and no others."""
    property_ = (
        "properties/test_mrg.py::test_any_partition_of_the_keys_merges_to_attention_over_all"
    )
    outputs = on_two_agents("static", property_, "--world", "launched", "-p", "no:xdist")
    assert sum("1 passed" in output for output in outputs) == 1, "\n".join(outputs)


def test_a_node_with_fewer_gpus_than_ranks_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    agent = launch(["--standalone", "--nproc-per-node", "2"], "--device", "cuda")
    output, _ = agent.communicate(timeout=200)
    assert agent.returncode == 1
    assert "process 0 of this node has no GPU, as there are 0: launch no more" in output


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two ranks need two GPUs")
def test_ranks_that_fail_over_nccl() -> None:
    agent = launch(
        ["--standalone", "--nproc-per-node", "2"],
        *("tests/ranks/launched_gpu_checks.py", "--device", "cuda"),
        timeout=10,
    )
    output, _ = agent.communicate(timeout=500)
    assert "8 passed" in output
    assert agent.returncode == 0, output


def test_a_rank_that_does_not_come_back_keeps_nobody_for_ever() -> None:
    where = ["--nproc-per-node", "3", "--master-addr", "127.0.0.1", "--master-port"]
    agent = launch([*where, str(free_port())], "tests/ranks/launched_stuck_checks.py", timeout=1)
    output, _ = agent.communicate(timeout=200)
    assert "1 passed" in output
    assert "rank 1 did not end within 10 s" in output
    assert agent.returncode == 1, output


def test_there_is_no_launched_world_without_torchrun() -> None:
    with pytest.raises(ValueError, match="torchrun"):
        launched_world(4)
