"""Acting one step behind: with whose parameters, what a checkpoint keeps of it, and who is refused."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_networks
from small_runs import CrashAt, CrashError, assert_same, checkpoints, differences, small, train
from test_resume import check_killed_anywhere

from duetto import learners
from duetto.algorithms import Algorithm
from duetto.cluster import Cluster, pacing
from duetto.cluster.blocks import Distant
from duetto.errors import CheckpointError, UsageError
from duetto.learners.acting import HostActing
from duetto.learners.behind import Behind
from duetto.learners.beside import Beside
from duetto.learners.parameters import Parameters
from duetto.networks.spaces import Box
from duetto.networks.specs import CustomNetwork
from duetto.runs.run import Run
from duetto.training.callbacks import Callback
from duetto.training.normalizer import Normalizer
from duetto.training.session import Session

BACKENDS = ("torch", "jax")
SPACES = (Box((3,), "float32", (-8.0,), (8.0,)), Box((1,), "float32", (-2.0,), (2.0,)))  # Pendulum's, nearly


class Watching(Callback):
    """Notes what every action was chosen from, and the acting parameters after each step's learning."""

    def __init__(self) -> None:
        self.after: dict[int, Parameters] = {}
        self.chosen: dict[int, tuple[Any, np.ndarray]] = {}  # at step t from 1 on

    def on_start(self, session: Session) -> None:
        self.after[0] = session.learner.parameters()
        step = session.stepper.step

        def noted(action: np.ndarray) -> Any:
            self.chosen[session.step + 1] = (np.array(session.stepper.obs), action.copy())
            return step(action)

        session.stepper.step = noted

    def on_step(self, session: Session) -> None:
        self.after[session.step] = session.learner.parameters()


def acts(algorithm: Algorithm, session_specs: Any, parameters: Parameters, obs: np.ndarray) -> np.ndarray:
    host = HostActing(algorithm, session_specs)
    host.use(parameters)
    return host.act(obs, None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "schedule", [{}, {"train_every": 3, "gradient_steps": 2}], ids=["every step", "2 updates every 3 steps"]
)
def test_step_t_is_acted_as_step_t_2_left_the_policy(tmp_path: Path, backend: str, schedule: dict[str, int]):
    algorithm = small("ddpg", random_steps=0, learning_starts=8, exploration_noise=0.0, **schedule)
    watching, specs = Watching(), {}
    run = train(
        tmp_path,
        algorithm,
        steps=24,
        backend=backend,
        act_behind=True,
        callbacks=[watching, lambda session: specs.update(session.learner.specs)],
    )
    assert run.config.run.act_behind
    moved = 0
    for step, (obs, action) in watching.chosen.items():
        then, newest = (acts(algorithm, specs, watching.after[max(0, step - ago)], obs) for ago in (2, 1))
        np.testing.assert_array_equal(action, then, f"step {step}")
        moved += not np.array_equal(newest, then)
    assert moved >= 4  # where the newest parameters act otherwise: this could have failed


def test_it_acts_as_ever_without_the_option(tmp_path: Path):
    """With the newest parameters, by the framework."""
    algorithm = small("ddpg", random_steps=0, learning_starts=8, exploration_noise=0.0)
    watching, specs = Watching(), {}
    train(tmp_path, algorithm, steps=20, callbacks=[watching, lambda s: specs.update(s.learner.specs)])
    for step, (obs, action) in watching.chosen.items():
        np.testing.assert_allclose(action, acts(algorithm, specs, watching.after[step - 1], obs), 1e-4)


@pytest.mark.parametrize(
    ("backend", "algorithm"), [("torch", "td3"), pytest.param("jax", "sac", marks=pytest.mark.slow)]
)
def test_killed_at_a_random_step(tmp_path: Path, backend: str, algorithm: str):
    check_killed_anywhere(tmp_path, algorithm=algorithm, backend=backend, act_behind=True)


@pytest.mark.slow
def test_killed_with_networks_of_the_full_size_and_priorities(tmp_path: Path):
    """Where BLAS and PyTorch have work for several threads."""
    hyperparameters = {"hidden": (400, 300), "batch_size": 256, "prioritized": True, "replay_capacity": 1000}
    check_killed_anywhere(tmp_path, hyperparameters=hyperparameters, threads=0, act_behind=True, checkpoint_every=50)


@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_at_every_step_around_the_first_updates(tmp_path: Path, backend: str):
    """Before the first action of its own, before and after the first updates, with an actor that is delayed."""
    options: dict[str, Any] = {"steps": 44, "backend": backend, "act_behind": True, "evaluate_every": 0}
    algorithm = small(random_steps=30, learning_starts=32)
    whole = train(tmp_path, algorithm, name="whole", **options | {"checkpoint_every": 0})  # which only look on
    for step in (30, 31, 32, 33, 34, 35, 43) if backend == "torch" else (34,):
        with pytest.raises(CrashError):
            train(tmp_path, algorithm, name=f"s{step}", callbacks=[CrashAt(step)], **options | {"checkpoint_every": 1})
        run = Run(tmp_path / f"s{step}")
        assert checkpoints(run).load_latest().step == step
        assert_same(whole, run.resume(), f"after step {step}")


def test_a_checkpoint_holds_the_newest_parameters_and_those_that_act(tmp_path: Path):
    """Evaluations, agents and exports read the first; what goes on from it also the second."""
    algorithm = small("ddpg", random_steps=0, learning_starts=8)
    watching = Watching()
    run = train(tmp_path, algorithm, steps=20, act_behind=True, callbacks=[watching])
    state = checkpoints(run).load_latest().state
    assert not differences(state["learner"]["parameters"], watching.after[20])
    assert not differences(state["acting"], {"actor": watching.after[19]["actor"]})
    assert differences(watching.after[19]["actor"], watching.after[20]["actor"])
    best = checkpoints(run).load_best()
    assert not differences(best.state["learner"]["parameters"], watching.after[best.step])
    obs = np.array([[1.0, 0.0, 0.5]], np.float32)
    agent = run.agent("last", backend="torch")
    np.testing.assert_allclose(
        agent.act_batch(obs) / 2.0,  # Pendulum's bounds
        acts(algorithm, algorithm.networks(agent.observation_space, agent.action_space), watching.after[20], obs),
        1e-5,
    )


def test_evaluations_see_the_newest(tmp_path: Path):
    """So does `session.policy`: that of step 20 is the one whose parameters are in the checkpoint."""
    seen: dict[int, np.ndarray] = {}
    obs = np.array([[1.0, 0.0, 0.5]], np.float32)
    algorithm = small("ddpg", random_steps=0, learning_starts=8)
    watching = Watching()

    def look(session: Session) -> None:
        seen[session.step] = session.policy(obs)

    run = train(tmp_path, algorithm, steps=20, act_behind=True, callbacks=[watching, look])
    specs = algorithm.networks(run.agent().observation_space, run.agent().action_space)
    for step, action in seen.items():
        np.testing.assert_allclose(action, acts(algorithm, specs, watching.after[step], obs), 1e-4)


def test_a_run_that_did_not_act_so_before_goes_on_with_it(tmp_path: Path):
    """Only where that is accepted, since other numbers follow."""
    run = train(tmp_path, steps=60)
    text = (run.path / "config.yaml").read_text("utf-8")
    (run.path / "config.yaml").write_text(text.replace("act_behind: false", "act_behind: true"), "utf-8")
    with pytest.raises(UsageError, match=r"run\.act_behind was false, is now true"):
        Run(run.path).resume(steps=80)
    again = Run(run.path).resume(steps=80, accept_changes=True)
    assert checkpoints(again).load_latest().state["acting"]


def test_a_config_of_before_acts_as_ever(tmp_path: Path):
    run = train(tmp_path, steps=60)
    text = (run.path / "config.yaml").read_text("utf-8")
    (run.path / "config.yaml").write_text(text.replace("  act_behind: false\n", ""), "utf-8")
    assert Run(run.path).config.run.act_behind is False
    assert_same(train(tmp_path, name="whole", steps=80), Run(run.path).resume(steps=80))


def test_others_parameters_in_its_place_are_refused(tmp_path: Path):
    run = train(tmp_path, steps=40, act_behind=True, evaluate_every=0)
    state = checkpoints(run).load_latest().state
    behind = Behind(learners.build("torch", run.config.algorithm, *SPACES))
    with pytest.raises(CheckpointError, match=r"actor's layers\.0\.weight has shape"):
        behind.load_state_dict({"actor": state["learner"]["parameters"]["critic"]})
    with pytest.raises(CheckpointError, match="acting is list"):
        behind.load_state_dict([1])


def test_who_learns_from_rollouts_refuses(tmp_path: Path):
    with pytest.raises(UsageError, match=r"ppo learns from what its newest policy did.*Leave out act_behind"):
        train(tmp_path, small("ppo"), act_behind=True)
    assert list(tmp_path.iterdir()) == []


def test_networks_that_numpy_cannot_act_with_are_refused(tmp_path: Path):
    algorithm = small(actor_network=CustomNetwork(torch=toy_networks.TorchActor))
    with pytest.raises(UsageError, match=r"does not act on images or with networks of your own\. Leave out act_behind"):
        train(tmp_path, algorithm, act_behind=True)


def test_paces_at_which_actors_are_behind_anyway_are_refused(tmp_path: Path):
    """With the pace exact this process acts, as it does without a cluster."""
    nobody: Any = object.__new__(Distant)
    config = train(tmp_path, steps=10).config
    behind = Behind(learners.build("torch", config.algorithm, *SPACES))
    for pace in ("lockstep", "free"):
        with pytest.raises(UsageError, match=rf"With the pace {pace} actors act with older parameters anyway"):
            pacing.source(Cluster(pace=pace), config, nobody, behind, Normalizer(SPACES[0], "off"))


# ---------------------------------------------------------------------------------------------------- the thread
def test_the_host_goes_on_while_pytorch_learns(tmp_path: Path):
    """Ten updates, each of which waits for the environment's next step: in one thread they would wait for ever."""
    steps, moved, updates = [0], threading.Condition(), [0]

    def wire(session: Session) -> None:
        if session.step != 40:
            return
        session.learner.parameters()  # waits for the update of this step
        minimize, step = session.learner.minimize, session.stepper.step

        def slow(name: str, *args: Any) -> Any:
            if name == "critic":
                updates[0] += 1
                with moved:
                    assert updates[0] > 10 or moved.wait_for(lambda: steps[0] > updates[0], 10)
            return minimize(name, *args)

        def noted(action: np.ndarray) -> Any:
            with moved:
                steps[0] += 1
                moved.notify_all()
            return step(action)

        session.learner.minimize = slow
        session.stepper.step = noted

    options = {"act_behind": True, "steps": 60, "evaluate_every": 0, "checkpoint_every": 0, "log_every": 1000}
    run = train(tmp_path, name="waits", callbacks=[wire], **options)
    assert steps == updates == [20]
    assert_same(train(tmp_path, name="whole", **options), run)


def test_what_fails_in_the_thread_ends_the_run_soon(tmp_path: Path):
    """Not only where a line of metrics looks at the update."""
    steps: list[int] = []

    def wire(session: Session) -> None:
        def fails(*args: Any) -> Any:
            raise ZeroDivisionError("of a loss")

        session.learner.minimize = fails
        steps.append(session.step)

    with pytest.raises(ZeroDivisionError, match="of a loss"):
        train(tmp_path, act_behind=True, log_every=1000, checkpoint_every=0, evaluate_every=0, callbacks=[wire])
    assert steps[-1] < 40  # the first update was that of step 31


def test_what_is_given_to_the_thread_is_done_in_order_and_never_piles_up():
    done: list[int] = []
    beside = Beside()

    def work(number: int) -> None:
        time.sleep(0.001)
        done.append(number)

    for number in range(40):
        beside.begin(lambda number=number: work(number))
        assert number - len(done) <= 4
    beside.finish()
    assert done == list(range(40))
