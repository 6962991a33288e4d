"""Keys are actions: one press is one step in MiniGrid, and held keys act on where an environment does not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from demo_cases import example

from duetto.demonstrations import RecordedGame, RecordingEndedError, record
from duetto.environments import VecEnv, make
from duetto.errors import UsageError

pygame: Any = pytest.importorskip("pygame")
player: Any = example("keyboard")
keys_for, Keys, Keyboard = player.keys_for, player.Keys, player.Keyboard


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.fixture
def keyboard() -> Iterator[Callable[..., Any]]:
    """Makes a Keyboard on which these keys go down and up, all those of one list between two looks; then Escape."""
    made: list[Any] = []

    def make_one(stepper: VecEnv, keys: Any, *looks: list[str], hold: bool = False) -> Any:
        coming = iter(looks)

        def events() -> list[Any]:
            names = next(coming, ["escape"])
            codes = [pygame.key.key_code(name) for name in names]
            kinds = (pygame.KEYDOWN,) if hold else (pygame.KEYDOWN, pygame.KEYUP)
            return [pygame.event.Event(kind, key=code) for code in codes for kind in kinds]

        made.append(Keyboard(stepper, keys, events))
        return made[-1]

    yield make_one
    for one in made:
        one.close()


def until_escape(player: Any, stepper: VecEnv, episodes: int) -> list[RecordedGame]:
    games: list[RecordedGame] = []
    with pytest.raises(RecordingEndedError):
        games.extend(record(player, stepper, episodes, seed=0))
    return games


def test_one_press_is_one_step_in_minigrid(keyboard: Callable[..., Any]):
    stepper = make("MiniGrid-Empty-5x5-v0", render_mode="rgb_array")
    keys = keys_for("MiniGrid-Empty-5x5-v0", stepper)
    player = keyboard(stepper, keys, ["up"], [], ["up", "right"], ["f"], ["up"], ["up"], ["left"])
    (game,) = until_escape(player, stepper, 2)
    assert game.demonstrations[0].action.tolist() == [2, 2, 1, 2, 2]
    assert game.score == pytest.approx(1 - 0.9 * 5 / 100)


def test_an_environments_own_keys():
    pytest.importorskip("ale_py")
    stepper = make("ALE/Pong-v5", render_mode="rgb_array", kwargs={"clip_rewards": True})
    keys = keys_for("ALE/Pong-v5", stepper)
    assert keys.otherwise == 0
    assert (keys.actions["space"], keys.actions["d"], keys.actions["d+space"]) == (1, 2, 4)


def test_own_keys_of_choices_that_do_not_begin_at_0():
    """Keys are the environment's own actions, and a stepper's start at 0."""

    class Lane(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(3, start=-1)

        def get_keys_to_action(self) -> dict[tuple[str], int]:
            return {("a",): -1, ("d",): 1}

    assert keys_for("Lane-v0", make(Lane)) == Keys({"a": 0, "d": 2}, 1)


def test_continuous_actions_are_no_keys():
    with pytest.raises(UsageError, match="Only Discrete actions can be keys"):
        Keyboard(make("Pendulum-v1", render_mode="rgb_array"))
