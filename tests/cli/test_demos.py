"""`duetto demos`: record, import, inspect, and error messages."""

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
from duetto.storage.manifest import read_sealed, seal

TASK = "MiniGrid-Empty-5x5-v0"
EXPERTS = Path(__file__).parents[2] / "examples" / "experts"
PLANNER = f"{EXPERTS / 'minigrid_planner.py'}:Planner"


@pytest.fixture
def recorded(duetto: Command) -> Result:
    """Record twelve episodes of the planner into the folder demos."""
    return duetto("demos", "record", TASK, "--expert", PLANNER, "--episodes", "12", "--output", "demos", "--seed", "5")


# ---------------------------------------------------------------------------------------------------- record
def test_demos_of_expert_from_file_are_recorded_and_inspected(duetto: Command, recorded: Result):
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


WALKER_EXPERT = """
import numpy as np


class Walker:
    def __init__(self, stepper):
        self.env = stepper.environments[0].unwrapped

    def __call__(self, obs, starts):
        fails = self.env._np_random_seed == 6
        return np.array([6 if fails else [2, 2, 1, 2, 2][self.env.step_count]])

    def rewarded(self, reward, env): ...
"""


@pytest.mark.parametrize("option", ["--only-successes", "--minimum-return=0.5"])
def test_record_skips_failed_episodes(duetto: Command, option: str):
    Path("own.py").write_text(WALKER_EXPERT)
    call = ["demos", "record", TASK, "--expert", "own.py:Walker", "--episodes", "3", "--output", "demos", "--seed", "5"]
    out = duetto(*call, option).done().out
    assert "3 episodes, 1 left out" in out
    found = demonstrations.load("demos")
    assert (found.seeds, found.metadata.expert) == ([5, 7, 8], "own.py:Walker")


def test_record_demos_of_trained_run(duetto: Command, trained: Path):
    call = ["demos", "record", "Pendulum-v1", "--expert", trained, "--seed", "100"]
    duetto(*call, "--episodes", "3", "--output", "demos").printed()
    found = demonstrations.load("demos")
    assert found.metadata.expert.startswith(f"td3 in {trained}, last checkpoint, step 60, ")
    assert found.lengths.tolist() == [200] * 3
    assert not found.terminated.any()
    assert found.episodes[0].action.dtype == np.float32
    evaluated = duetto("evaluate", trained, "--episodes", "3", "--seed", "0").out.splitlines()[:3]
    np.testing.assert_allclose(found.returns, [float(line.split()[3]) for line in evaluated], atol=0.01)
    assert duetto(*call, "--episodes", "1", "--output", "earlier", "--checkpoint", "30").code == 0
    assert "30 checkpoint, step 30, " in demonstrations.load("earlier").metadata.expert


def test_recorded_run_acts_greedily_without_stochastic_option(duetto: Command):
    """Also if the run's own evaluations explore (`evaluation_epsilon`)."""
    small = ["--hidden", "16", "--learning-starts", "20", "--evaluate-every", "0", "--evaluation-epsilon", "0.9"]
    call = ["train", "dqn", "CartPole-v1", "--steps", "60", *small, "--name", "chance", "--quiet"]
    assert duetto(*call).code == 0
    policy = library.load("runs/chance").policy
    policy.greedy = True
    call = ["demos", "record", "CartPole-v1", "--expert", "runs/chance", "--episodes", "5"]
    for output, greedy in (("best", []), ("sampled", ["--stochastic"])):
        assert duetto(*call, "--output", output, *greedy).code == 0
        episodes = demonstrations.load(output).episodes
        same = [policy(episode.obs[: len(episode.action)]).ravel() == episode.action.ravel() for episode in episodes]
        assert np.concatenate(same).all() == (output == "best")


def test_record_uses_environment_options_of_the_run(duetto: Command, train: Command):
    assert train("--environment-options", "g=5", algorithm="td3").code == 0
    run = "runs/td3-Pendulum-v1-s0"
    call = ["demos", "record", "Pendulum-v1", "--expert", run, "--episodes", "1"]
    assert duetto(*call, "--output", "one").code == 0
    assert demonstrations.load("one").metadata.options == {"g": 5}
    assert duetto(*call, "--output", "two", "--environment-options", "g=7").code == 0
    assert demonstrations.load("two").metadata.options == {"g": 7}


MISTAKES = {
    "unknown expert": (
        ["CartPole-v1", "--expert", "bott"],
        "There is no expert 'bott'. Give the folder of a run, or FILE.py:CLASS.",
    ),
    "wrong environment": (["CartPole-v1", "--expert", PLANNER], "CartPole-v1 is not a MiniGrid environment"),
    "missing file": ([TASK, "--expert", "none.py:A"], "cannot be read: No such file"),
    "keyboard for continuous actions": (
        ["Pendulum-v1", "--expert", f"{EXPERTS / 'keyboard.py'}:Keyboard"],
        "Only Discrete actions can be keys",
    ),
    "no run folder": (["CartPole-v1", "--expert", "."], " is no run folder"),
    "unreachable minimum return": (
        [TASK, "--expert", PLANNER, "--minimum-return", "0.99"],
        "Only 0 of 20 episodes were good enough",
    ),
    "zero episodes": ([TASK, "--expert", PLANNER, "--episodes", "0"], "episodes is 0; it must be at least 1"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_in_record_call_are_reported(duetto: Command, arguments: list[str], message: str):
    code, _, err = duetto("demos", "record", *arguments, "--output", "demos")
    assert code == 2
    assert message in err
    assert list(Path().iterdir()) == []


def test_record_overwrites_only_with_overwrite_option(duetto: Command, recorded: Result):
    call = ["demos", "record", TASK, "--episodes", "1", "--output", "demos"]
    code, _, err = duetto(*call, "--expert", "runs/none")  # the output folder is checked before the expert
    assert code == 2
    assert "demos exists already" in err
    assert len(demonstrations.load("demos")) == 12
    assert duetto(*call, "--expert", PLANNER, "--overwrite").code == 0
    assert len(demonstrations.load("demos")) == 1


def test_recording_stops_when_the_player_quits(duetto: Command, monkeypatch: pytest.MonkeyPatch):
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
def test_minari_dataset_is_imported(duetto: Command):
    write_minari(Path("old"))
    call = ["demos", "import", "old", "--environment", "Pendulum-v1", "--output", "demos"]
    code, _, err = duetto(*call)
    assert code == 2
    assert "Minari and HDF5, which read old, do not protect against malicious files." in err
    assert "--trust" in err
    assert not Path("demos").exists()
    out = duetto(*call, "--trust").printed()
    assert "demos: 2 episodes, 6 steps" in out
    found = demonstrations.load("demos")
    assert found.episodes[0].action.tolist() == [[1.0]] * 3
    assert duetto(*call, "--trust").code == 2  # exists already
    code, _, err = duetto(*call, "--trust", "--environment", "CartPole-v1", "--output", "other")
    assert (code, Path("other").exists()) == (2, False)
    assert "its observation space is " in err


# ---------------------------------------------------------------------------------------------------- inspect
def test_inspect_writes_video_of_an_episode(duetto: Command):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    call = ["demos", "record", "MiniGrid-UnlockPickup-v0", "--expert", PLANNER, "--episodes", "2", "--output", "demos"]
    assert duetto(*call).code == 0
    out = duetto("demos", "inspect", "demos", "--video", "one.mp4", "--episode", "1").printed()
    assert out.splitlines()[-1] == "one.mp4"
    assert ffmpeg.count_frames_and_secs("one.mp4")[0] == demonstrations.load("demos").lengths[1]


def test_inspect_refuses_video_if_the_replay_differs(duetto: Command, recorded: Result):
    change_manifest(options={"size": 7})
    code, _, err = duetto("demos", "inspect", "demos", "--video", "one.mp4")
    assert code == 2
    assert "cannot be replayed" in err
    assert not Path("one.mp4").exists()


def change_manifest(**changes: Any) -> None:
    """Change the manifest and correct its checksum, as an attacker can."""
    content = read_sealed(Path("demos/manifest.json"))
    Path("demos/manifest.json").write_bytes(seal(content | changes))


@pytest.fixture
def saved_demos() -> None:
    Path("evil_demos.py").write_text("import pathlib\npathlib.Path('imported').touch()")
    spaces = Box((3,), "float32", (-np.inf,), (np.inf,)), Box((1,), "float32", (-2.0,), (2.0,))
    demo = Demonstration(np.zeros((4, 3), np.float32), np.ones((3, 1), np.float32), np.ones(3, np.float32), False, True)
    demonstrations.save("demos", Metadata("Pendulum-v1", {}, "me", *spaces), [demo, demo], seeds=[0, 1])


def test_inspect_imports_foreign_module_only_with_trust(
    duetto: Command, saved_demos: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setenv("DUETTO_KEY_FILE", str(Path.cwd() / "key"))
    for signature in (None, "0" * 64, 7):
        change_manifest(environment="evil_demos:Evil-v0", signature=signature)
        assert duetto("demos", "inspect", "demos").code == 0
        code, _, err = duetto("demos", "inspect", "demos", "--video", "one.mp4")
        assert code == 2
        assert "demos imports or runs 'evil_demos:Evil-v0'" in err
        assert "--trust" in err
        assert not Path("imported").exists()
    assert "--trust" not in duetto("demos", "inspect", "demos", "--video", "one.mp4", "--trust").err
    assert Path("imported").exists()  # the import happens although the module registers no Evil-v0
    change_manifest(signature=signing.sign(signing.references("evil_demos:Evil-v0", {})))
    assert "--trust" not in duetto("demos", "inspect", "demos", "--video", "one.mp4").err
    del sys.modules["evil_demos"]


def test_saved_demos_of_custom_module_are_signed(duetto: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DUETTO_KEY_FILE", str(Path.cwd() / "key"))
    about = Metadata("some_module:Some-v0", {}, "me", Discrete(2), Discrete(2))
    demo = Demonstration(np.array([0, 1]), np.array([1]), np.ones(1, np.float32), True, False)
    demonstrations.save("demos", about, [demo])
    assert demonstrations.load("demos").signature == signing.sign(signing.references("some_module:Some-v0", {}))


def test_inspect_escapes_control_characters(duetto: Command, saved_demos: None):
    clear = "\x1b[2J\x9b2J"
    change_manifest(
        environment=f"Pendulum{clear}", expert=f"me{clear}", options={clear: clear}, versions={"duetto": clear}
    )
    for arguments in (["demos"], ["demos", "--video", "one.mp4"]):
        _, out, err = duetto("demos", "inspect", *arguments)
        assert "Pendulum\\x1b[2J\\x9b2J" in out + err
        assert not {"\x1b", "\x9b"} & set(out + err)


# ---------------------------------------------------------------------------------------------------- help
def test_demos_help_lists_the_subcommands(duetto: Command):
    out = duetto("demos", "--help").printed()
    assert out.startswith("usage: duetto demos record|export|import|inspect")
    assert all(f"duetto demos {name} " in out for name in ("record", "export", "import", "inspect"))
    assert duetto("demos").out == duetto("demos", "-h").out == out
    code, _, err = duetto("demos", "recrod")
    assert code == 2
    assert "There is no command 'demos recrod'. Did you mean 'demos record'?" in err
