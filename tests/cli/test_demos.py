"""`duetto demos`: record, import and inspect, and what it says about mistakes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, Result, write_minari

import duetto as library
from duetto import demonstrations, environments
from duetto.demonstrations import Demonstration, Metadata
from duetto.networks.spaces import Box, Discrete
from duetto.storage import signing
from duetto.storage.manifest import seal, unseal

TASK = "MiniGrid-Empty-5x5-v0"
EXPERTS = Path(__file__).parents[2] / "examples" / "experts"
PLANNER = f"{EXPERTS / 'minigrid_planner.py'}:Planner"


@pytest.fixture
def recorded(duetto: Command) -> Result:
    """Twelve episodes of the planner, in the folder demos."""
    return duetto("demos", "record", TASK, "--expert", PLANNER, "--episodes", "12", "--output", "demos", "--seed", "5")


# ---------------------------------------------------------------------------------------------------- record
def test_an_expert_of_a_file_is_recorded(recorded: Result):
    assert (recorded.code, recorded.err) == (0, "")
    assert "demos: 12 episodes, 60 steps, return 0.955 (0.955 to 0.955)" in recorded.out
    assert "duetto demos inspect demos" in recorded.out
    found = demonstrations.load("demos")
    about = found.metadata
    assert (about.environment, about.options, about.expert) == (TASK, {}, "Duetto's planner for MiniGrid")
    assert "duetto" in about.versions
    assert found.seeds == list(range(5, 17))
    stepper = environments.make(TASK)
    demonstrations.check_fits(found, stepper.observation_space, stepper.action_space, TASK, {})


def test_options_reach_the_environment_and_are_kept(duetto: Command):
    call = ["demos", "record", TASK, "--expert", PLANNER, "--episodes", "1", "--output", "demos"]
    assert duetto(*call, "--environment-options", "agent_view_size=5", "max_steps=50").code == 0
    found = demonstrations.load("demos")
    assert found.metadata.options == {"agent_view_size": 5, "max_steps": 50}
    assert found.returns[0] == pytest.approx(1 - 0.9 * 5 / 50)


def test_bad_episodes_are_left_out(duetto: Command):
    # The planner needs 15 to 25 steps: return 1 - 0.9 * steps / 288.
    call = ["demos", "record", "MiniGrid-UnlockPickup-v0", "--expert", PLANNER, "--episodes", "5", "--output", "demos"]
    out = duetto(*call, "--minimum-return", "0.945").done().out
    found = demonstrations.load("demos")
    assert found.returns.min() >= 0.945
    last = found.seeds[-1]
    assert last is not None, "a recording knows the seed of every episode"
    tried = last + 1  # the seeds are 0, 1, 2 ..., and the fifth good episode is the last one tried
    assert tried > 5
    assert f"5 episodes, {tried - 5} left out" in out


OWN = """
import numpy as np


class Walker:
    def __init__(self, stepper):
        self.env = stepper.environments[0].unwrapped

    def __call__(self, obs, starts):
        fails = self.env._np_random_seed == 6
        return np.array([6 if fails else [2, 2, 1, 2, 2][self.env.step_count]])

    def rewarded(self, reward, env): ...
"""


def test_where_an_expert_fails_the_episode_is_left_out(duetto: Command):
    Path("own.py").write_text(OWN)
    call = ["demos", "record", TASK, "--expert", "own.py:Walker", "--episodes", "3", "--output", "demos", "--seed", "5"]
    out = duetto(*call, "--only-successes").done().out
    assert "3 episodes, 1 left out" in out
    found = demonstrations.load("demos")
    assert (found.seeds, found.metadata.expert) == ([5, 7, 8], "own.py:Walker")


@pytest.fixture
def run(train: Command) -> str:
    assert train(algorithm="td3").code == 0
    return "runs/td3-Pendulum-v1-s0"


def test_a_run_is_recorded(duetto: Command, run: str):
    call = ["demos", "record", "Pendulum-v1", "--expert", run, "--episodes", "3", "--output", "demos"]
    duetto(*call, "--seed", "100").printed()
    found = demonstrations.load("demos")
    assert found.metadata.expert.startswith(f"td3 in {run}, last checkpoint, step 60, ")
    assert found.lengths.tolist() == [200] * 3
    assert not found.terminated.any()
    assert found.episodes[0].action.dtype == np.float32
    again = [line.split()[3] for line in duetto("evaluate", run, "--episodes", "3", "--seed", "0").out.splitlines()[:3]]
    np.testing.assert_allclose(found.returns, [float(value) for value in again], atol=0.01)


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_run_shows_its_best_actions_unless_it_is_asked_to_explore(duetto: Command, stochastic: bool):
    """Also where its evaluations sample: what an expert did by chance is no example."""
    small = ["--hidden", "16", "--learning-starts", "20", "--evaluate-every", "0", "--evaluation-epsilon", "0.9"]
    call = ["train", "dqn", "CartPole-v1", "--steps", "60", *small, "--name", "chance", "--quiet"]
    assert duetto(*call).code == 0
    call = ["demos", "record", "CartPole-v1", "--expert", "runs/chance", "--episodes", "5", "--output", "demos"]
    assert duetto(*call, *(["--stochastic"] if stochastic else [])).code == 0
    policy = library.load("runs/chance").policy
    policy.greedy = True
    episodes = demonstrations.load("demos").episodes
    same = [policy(episode.obs[: len(episode.action)]).ravel() == episode.action.ravel() for episode in episodes]
    assert np.concatenate(same).all() != stochastic


@pytest.mark.parametrize(("checkpoint", "step"), [("best", ""), ("30", "30, ")])
def test_any_checkpoint_is_recorded(duetto: Command, run: str, checkpoint: str, step: str):
    call = ["demos", "record", "Pendulum-v1", "--expert", run, "--episodes", "1", "--output", "demos"]
    assert duetto(*call, "--checkpoint", checkpoint).code == 0
    assert f"{checkpoint} checkpoint, step {step}" in demonstrations.load("demos").metadata.expert


def test_a_strangers_run_is_recorded_with_a_word(
    duetto: Command, train: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "own.py").write_text("from duetto.algorithms import TD3\n\nclass Own(TD3):\n    pass\n")
    assert train(algorithm="./own.py:Own").code == 0
    monkeypatch.setenv("DUETTO_KEY_FILE", str(tmp_path / "other"))
    call = ["demos", "record", "Pendulum-v1", "--expert", "runs/own-Pendulum-v1-s0", "--episodes", "1", "--output", "d"]
    assert "not started by you" in duetto(*call).err
    assert duetto(*call, "--trust").code == 0


def test_a_runs_own_options_are_taken(duetto: Command, train: Command):
    assert train("--environment-options", "g=5", algorithm="td3").code == 0
    run = "runs/td3-Pendulum-v1-s0"
    call = ["demos", "record", "Pendulum-v1", "--expert", run, "--episodes", "1"]
    assert duetto(*call, "--output", "one").code == 0
    assert demonstrations.load("one").metadata.options == {"g": 5}
    assert duetto(*call, "--output", "two", "--environment-options", "g=7").code == 0
    assert demonstrations.load("two").metadata.options == {"g": 7}


def test_a_run_of_another_environment(duetto: Command, run: str):
    code, _, err = duetto("demos", "record", "MountainCarContinuous-v0", "--expert", run, "--output", "demos")
    assert code == 2
    assert "MountainCarContinuous-v0 has the observation space Box((2,), float32); the agent" in err
    assert not Path("demos").exists()


BOUNDED = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Bounded(gymnasium.Env):
    def __init__(self, high=1.0, most=1.0):
        self.observation_space, self.action_space = Box(-high, high, (3,)), Box(-most, most, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 1.0, True, False, {}
"""


def test_bounds_of_observations_do_not_matter_and_those_of_actions_are_shown(duetto: Command, tmp_path: Path):
    """Both were refused, in a sentence that showed twice the same."""
    (tmp_path / "own.py").write_text(BOUNDED)
    small = ["--steps", "20", "--hidden", "8", "--evaluate-every", "0", "--name", "expert"]
    assert duetto("train", "td3", "own.py:Bounded", *small).code == 0
    call = ["demos", "record", "own.py:Bounded", "--expert", "runs/expert", "--episodes", "1"]
    assert duetto(*call, "--output", "one", "--environment-options", "high=2").code == 0
    code, _, err = duetto(*call, "--output", "two", "--environment-options", "most=3")
    assert code == 2
    assert "Box((1,), float32, from -3 to 3); the agent was trained with Box((1,), float32, from -1 to 1)" in err


MISTAKES = {
    "no such expert": (
        ["CartPole-v1", "--expert", "bott"],
        "There is no expert 'bott'. Give the folder of a run, or FILE.py:CLASS.",
    ),
    "another task": (["CartPole-v1", "--expert", PLANNER], "CartPole-v1 is not a MiniGrid environment"),
    "no file": ([TASK, "--expert", "none.py:A"], "cannot be read: No such file"),
    "no class": (
        [TASK, "--expert", PLANNER.replace("Planner", "Plan")],
        "has no class 'Plan'. Did you mean 'Planner'?",
    ),
    "no name": ([TASK, "--expert", PLANNER.partition(":")[0]], ".py:CLASS. It has: "),
    "no keys": (
        ["Pendulum-v1", "--expert", f"{EXPERTS / 'keyboard.py'}:Keyboard"],
        "Only Discrete actions can be keys",
    ),
    "no run": (["CartPole-v1", "--expert", "."], " is no run folder"),
    "too good": ([TASK, "--expert", PLANNER, "--minimum-return", "0.99"], "Only 0 of 20 episodes were good enough"),
    "no episodes": ([TASK, "--expert", PLANNER, "--episodes", "0"], "episodes is 0; it must be at least 1"),
    "no episodes of a run": ([TASK, "--expert", ".", "--episodes", "0"], "episodes is 0; it must be at least 1"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_sentences(duetto: Command, arguments: list[str], message: str):
    code, _, err = duetto("demos", "record", *arguments, "--output", "demos")
    assert code == 2
    assert message in err
    assert list(Path().iterdir()) == []


def test_nothing_is_overwritten_unasked(duetto: Command, recorded: Result):
    call = ["demos", "record", TASK, "--episodes", "1", "--output", "demos"]
    code, _, err = duetto(*call, "--expert", "runs/none")  # the output is looked at first
    assert code == 2
    assert "demos exists already" in err
    assert len(demonstrations.load("demos")) == 12
    assert duetto(*call, "--expert", PLANNER, "--overwrite").code == 0
    assert len(demonstrations.load("demos")) == 1


def test_who_plays_may_stop_at_any_time(duetto: Command, monkeypatch: pytest.MonkeyPatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    keys = iter(["up", "up", "right", "up", "up", "left"])

    def events() -> list[object]:
        return [pygame.event.Event(pygame.KEYDOWN, key=pygame.key.key_code(next(keys, "escape")))]

    monkeypatch.setattr(pygame.event, "get", events)
    code, out, err = duetto(
        "demos", "record", TASK, "--expert", f"{EXPERTS / 'keyboard.py'}:Keyboard", "--output", "demos"
    )
    assert code == 0
    assert "Keys: left and right turn" in err
    assert "demos: 1 episodes, 5 steps" in out
    assert demonstrations.load("demos").metadata.expert == "a person at the keyboard"


# ---------------------------------------------------------------------------------------------------- import
def test_a_minari_dataset_is_imported(duetto: Command):
    write_minari(Path("old"))
    call = ["demos", "import", "old", "--environment", "Pendulum-v1", "--output", "demos"]
    code, _, err = duetto(*call)
    assert code == 2
    assert "old is read by Minari and HDF5" in err
    assert "--trust" in err
    assert not Path("demos").exists()
    out = duetto(*call, "--trust").printed()
    assert "demos: 2 episodes, 6 steps" in out
    found = demonstrations.load("demos")
    assert found.episodes[0].action.tolist() == [[1.0]] * 3
    assert duetto(*call, "--trust").code == 2  # exists already


def test_importing_for_another_environment(duetto: Command):
    write_minari(Path("old"))
    call = ["demos", "import", "old", "--environment", "CartPole-v1", "--output", "demos", "--trust"]
    code, _, err = duetto(*call)
    assert code == 2
    assert "its observation space is " in err
    assert not Path("demos").exists()


# ---------------------------------------------------------------------------------------------------- inspect
def test_inspecting(duetto: Command, recorded: Result):
    out = duetto("demos", "inspect", "demos").printed()
    for line in (
        f"environment   {TASK}",
        "expert        Duetto's planner for MiniGrid",
        "observations  Box((1038,), uint8)",
        "actions       Discrete(7)",
        "episodes      12: 12 terminated, 0 truncated",
        "return        0.955 (0.955 to 0.955)",
        "steps         5 (5 to 5), 60 in all",
    ):
        assert line in out


def test_a_video_of_an_episode(duetto: Command):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    call = ["demos", "record", "MiniGrid-UnlockPickup-v0", "--expert", PLANNER, "--episodes", "2", "--output", "demos"]
    assert duetto(*call).code == 0
    out = duetto("demos", "inspect", "demos", "--video", "one.mp4", "--episode", "1").printed()
    assert out.splitlines()[-1] == "one.mp4"
    assert ffmpeg.count_frames_and_secs("one.mp4")[0] == demonstrations.load("demos").lengths[1]


def test_no_video_where_it_comes_out_otherwise(duetto: Command, recorded: Result):
    change(options={"size": 7})
    code, _, err = duetto("demos", "inspect", "demos", "--video", "one.mp4")
    assert code == 2
    assert "cannot be replayed" in err
    assert not Path("one.mp4").exists()


def change(**changes: Any) -> None:
    """Change the manifest of the demonstrations, with a correct checksum, as a stranger can."""
    content = unseal(Path("demos/manifest.json").read_bytes())
    Path("demos/manifest.json").write_bytes(seal(content | changes))


@pytest.fixture
def episode() -> None:
    Path("evil_demos.py").write_text("import pathlib\npathlib.Path('imported').touch()")
    spaces = Box((3,), "float32", (-np.inf,), (np.inf,)), Box((1,), "float32", (-2.0,), (2.0,))
    demo = Demonstration(np.zeros((4, 3), np.float32), np.ones((3, 1), np.float32), np.ones(3, np.float32), False, True)
    demonstrations.save("demos", Metadata("Pendulum-v1", {}, "me", *spaces), [demo, demo], seeds=[0, 1])


def test_a_strangers_module_is_not_imported(duetto: Command, episode: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setenv("DUETTO_KEY_FILE", str(Path.cwd() / "key"))
    for signature in (None, "0" * 64, 7):
        change(environment="evil_demos:Evil-v0", signature=signature)
        assert duetto("demos", "inspect", "demos").code == 0
        code, _, err = duetto("demos", "inspect", "demos", "--video", "one.mp4")
        assert code == 2
        assert "demos imports or runs 'evil_demos:Evil-v0'" in err
        assert "--trust" in err
        assert not Path("imported").exists()
    assert "--trust" not in duetto("demos", "inspect", "demos", "--video", "one.mp4", "--trust").err
    assert Path("imported").exists()  # though there is no Evil-v0 in it
    change(signature=signing.sign(signing.references("evil_demos:Evil-v0", {})))
    assert "--trust" not in duetto("demos", "inspect", "demos", "--video", "one.mp4").err
    del sys.modules["evil_demos"]


def test_ones_own_module_needs_no_word(duetto: Command, monkeypatch: pytest.MonkeyPatch):
    """What is written of such an environment is signed."""
    monkeypatch.setenv("DUETTO_KEY_FILE", str(Path.cwd() / "key"))
    about = Metadata("some_module:Some-v0", {}, "me", Discrete(2), Discrete(2))
    demo = Demonstration(np.array([0, 1]), np.array([1]), np.ones(1, np.float32), True, False)
    demonstrations.save("demos", about, [demo])
    assert demonstrations.load("demos").signature == signing.sign(signing.references("some_module:Some-v0", {}))


def test_a_terminal_is_not_steered(duetto: Command, episode: None):
    clear = "\x1b[2J\x9b2J"
    change(environment=f"Pendulum{clear}", expert=f"me{clear}", options={clear: clear}, versions={"duetto": clear})
    for arguments in (["demos"], ["demos", "--video", "one.mp4"]):
        _, out, err = duetto("demos", "inspect", *arguments)
        assert "Pendulum\\x1b[2J\\x9b2J" in out + err
        assert not {"\x1b", "\x9b"} & set(out + err)


# ---------------------------------------------------------------------------------------------------- help
@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_names_the_four(duetto: Command, arguments: list[str]):
    out = duetto("demos", *arguments).printed()
    assert out.startswith("usage: duetto demos record|export|import|inspect")
    assert all(f"duetto demos {name} " in out for name in ("record", "export", "import", "inspect"))


def test_an_unknown_part(duetto: Command):
    code, _, err = duetto("demos", "recrod")
    assert code == 2
    assert "There is no command 'demos recrod'. Did you mean 'demos record'?" in err
