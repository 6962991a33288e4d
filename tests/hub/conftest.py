from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import TOKEN, Server, serving

import duetto
from duetto.runs.run import Run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run with two checkpoints, a best one and a replay buffer. Tests must not change it."""
    return duetto.train(
        duetto.TD3(hidden=(16, 16), batch_size=8, random_steps=20, learning_starts=20, replay_capacity=100),
        "Pendulum-v1",
        runs_dir=tmp_path_factory.mktemp("trained"),
        name="made",
        environment_options={"max_episode_steps": 30},
        steps=60,
        backend="torch",
        device="cpu",
        threads=1,
        evaluate_every=40,
        evaluation_episodes=2,
        checkpoint_every=30,
        log_every=10,
    ).path


@pytest.fixture
def run(trained: Path) -> Run:
    return Run(trained)


@pytest.fixture
def user_without_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the token, and allow connections only to the loopback address."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # huggingface_hub waits before it retries
    connect = socket.socket.connect

    def connect_to_loopback(self: socket.socket, address: tuple[str, int]) -> None:
        assert address[0] in ("127.0.0.1", "::1"), f"{address} is outside"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_to_loopback)


@pytest.fixture
def server(user_without_token: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Start a server, and set a token that may write to it."""
    from huggingface_hub import close_session, constants

    with serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the test server does not support it
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub
        close_session()
