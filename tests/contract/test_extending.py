"""Custom networks, algorithms, environments, callbacks and trackers; push and pull; agents in scripts."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from contract_cases import BACKENDS, BRIEF, RUN, SMALL, Doors, distance

import duetto

sys.path.append(str(Path(__file__).parents[1] / "hub"))

pytest.importorskip("torch")
pytest.importorskip("jax")

Command = Callable[..., Any]
OBS = np.zeros(3, np.float32)


def train(folder: Path, environment: Any = "Pendulum-v1", algorithm: Any = None, **options: Any) -> duetto.Run:
    kept = {"environment_options": BRIEF} if environment == "Pendulum-v1" else {}
    options = RUN | {"backend": "torch", "threads": 1, "runs_dir": folder} | kept | options
    return duetto.train(algorithm or duetto.TD3(**SMALL), environment, **options)


def critic() -> duetto.CustomNetwork:
    import equinox
    import jax
    import jax.numpy as jnp
    import torch

    class TorchCritic(torch.nn.Module):
        def __init__(self, observation: Any, action_size: int, width: int) -> None:
            super().__init__()
            self.inside = torch.nn.Linear(observation.size + action_size, width)
            self.outside = torch.nn.Linear(width, 1)

        def forward(self, obs: Any, action: Any) -> Any:
            return self.outside(torch.relu(self.inside(torch.cat([obs, action], -1))))[:, 0]

    class JaxCritic(equinox.Module):
        inside: equinox.nn.Linear
        outside: equinox.nn.Linear

        def __init__(self, observation: Any, action_size: int, width: int, *, key: Any) -> None:
            self.inside = equinox.nn.Linear(observation.size + action_size, width, key=key)
            self.outside = equinox.nn.Linear(width, 1, key=key)

        def __call__(self, obs: Any, action: Any) -> Any:
            row = jnp.concatenate([obs, action], -1)
            return jax.vmap(self.outside)(jax.nn.relu(jax.vmap(self.inside)(row)))[:, 0]

    return duetto.CustomNetwork(torch=TorchCritic, jax=JaxCritic, arguments={"width": 8})


@pytest.mark.parametrize("backend", BACKENDS)
def test_custom_network_acts_equally_on_both_frameworks(tmp_path: Path, backend: str):
    networks = {"critic_network": critic()}
    run = train(tmp_path, algorithm=duetto.TD3(**SMALL, **networks), backend=backend, threads=int(backend == "torch"))
    actions = [duetto.load(run.path, networks=networks, backend=other).act(OBS) for other in BACKENDS]
    np.testing.assert_allclose(*actions, atol=1e-4)


ALGORITHM = """
from dataclasses import dataclass
from typing import Any

import duetto

@dataclass(frozen=True)
class Half(duetto.TD3):
    '''TD3 with a critic loss of another scale.'''

    share: float = 0.5
    '''Factor of the loss.'''

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        loss, info = super().critic_loss(nets, batch, noise)
        return self.share * loss, info
"""


def test_custom_algorithm_learns_equally_on_both_frameworks(command: Command, tmp_path: Path):
    (tmp_path / "half.py").write_text(ALGORITHM)
    small = "--hidden 8 --batch-size 8 --random-steps 10 --learning-starts 10 --steps 40 --evaluate-every 0 --quiet"
    for backend in BACKENDS:
        options = f"--share 0.1 --max-grad-norm 1 --backend {backend} --device cpu --name {backend} {small}"
        assert command(f"train ./half.py:Half Pendulum-v1 {options}").code == 0
    in_torch, in_jax = (duetto.Run(tmp_path / "runs" / backend) for backend in BACKENDS)
    assert distance(in_torch, in_jax) < 1e-3
    assert "--share" in command("train ./half.py:Half --help").out


def test_check_algorithm_runs_a_single_check():
    from duetto import testing

    assert len(testing.checks()) > 5
    testing.check_algorithm(duetto.DDPG, testing.checks()[0])


def test_custom_environments_pass_check_and_train(command: Command, tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "def make(**options):\n    return gymnasium.wrappers.TimeLimit(CartPoleEnv(**options), 15)\n"
    )
    (tmp_path / "registered.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:CartPoleEnv', 15)\n"
    )
    small = "--hidden 8 --rollout-steps 10 --minibatches 2 --backend torch --device cpu --steps 20 --quiet"
    for name in ("./mine.py:make", "registered:Mine-v0"):
        assert command(f"check {name} --steps 50").code == 0
        assert command(f"train ppo {name} {small} --num-envs 2").code == 0
    dqn = duetto.DQN(**SMALL)
    for name, environment in {"object": Doors(), "callable": Doors}.items():
        assert train(tmp_path, environment, dqn, name=name).evaluate(episodes=1).mean_return >= 0


def test_check_finds_a_broken_environment():
    class Broken(Doors):
        def look(self) -> Any:
            obs, info = super().look()
            return obs * np.nan, info

    class Low(Doors):
        def step(self, action: Any) -> Any:
            obs, *rest = super().step(action)
            return obs - (self.steps > 4), *rest

    def levels(environment: Any, about: str = "") -> set[str]:
        findings = duetto.check(environment, steps=200)
        return {finding.level for finding in findings if about in finding.about}

    assert "broken" in levels(Broken)
    assert "broken" not in levels("CartPole-v1")
    assert levels(Low, "observations") == {"costs"}
    assert levels(Doors, "observations") <= {"fine"}


def test_callback_hooks_and_custom_tracker_are_called(tmp_path: Path):
    calls: list[Any] = []

    hooks = ("on_start", "on_update", "on_step", "on_evaluation", "on_checkpoint", "on_end")
    methods = {hook: lambda self, trainer, hook=hook: calls.append(hook) for hook in hooks}
    seen: Any = type("Seen", (duetto.Callback,), methods)

    class Mine(duetto.trackers.Tracker):
        name = "mine"

        def start(self, run: str, known: str | None, config: Any, folder: Path) -> tuple[str, str]:
            return known or "1", ""

        def send(self, point: Any) -> None:
            calls.append(point)

        def best(self, folder: Path, step: int, mean_return: float) -> None:
            calls.append(("best", step))

        def finish(self, failed: bool) -> None:
            calls.append(("finished", failed))

    ready = [duetto.callbacks.TimeLimit(600), duetto.callbacks.StopAtReturn(1e9)]
    run = train(tmp_path, callbacks=[seen(), *ready, lambda trainer: calls.append(trainer.step)], track=[Mine()])
    assert all(call in calls for call in (*hooks, 40))
    assert any(getattr(call, "numbers", {}).keys() & run.metrics()[-1].keys() for call in calls)
    assert ("finished", False) in calls
    assert run.agent(checkpoint=20).step == 20


@pytest.mark.filterwarnings("ignore")  # of the tracking services
@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_tracking_service_stores_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    for variable, value in {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(variable, value)
    before = set(tmp_path.rglob("*"))
    run = train(tmp_path / "runs", track=[name])
    assert [path for path in set(tmp_path.rglob("*")) - before if run.path not in path.parents]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Serve the Hub on the loopback address, and refuse all other connections."""
    constants = pytest.importorskip("huggingface_hub.constants")
    from hub_server import TOKEN, serving
    from huggingface_hub import close_session

    connect = socket.socket.connect

    def near(self: socket.socket, address: tuple[str, int]) -> None:
        assert address[0] in ("127.0.0.1", "::1"), f"{address} is outside"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", near)
    with serving() as server:
        url = server.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the test server does not support it
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server
        close_session()


def test_pulled_run_acts_as_the_pushed_run(hub: Any, command: Command, tmp_path: Path):
    run = train(tmp_path, name="made")
    assert command(f"push {run.path} me/run --episodes 1 --no-video").code == 0
    assert "README.md" in hub.repositories["me/run"].files()
    assert command("pull me/run --output fetched").code == 0
    assert duetto.load("fetched").act(OBS) == duetto.load(run.path).act(OBS)


def test_agent_acts_in_a_script(tmp_path: Path):
    agent = train(tmp_path).agent()
    env = gymnasium.make("Pendulum-v1", **BRIEF)
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(agent.act(obs))
    assert agent.act_batch(np.stack([obs, obs])).shape == (2, 1)
    assert np.isfinite(train(tmp_path, name="other").evaluate(episodes=1).mean_return)
