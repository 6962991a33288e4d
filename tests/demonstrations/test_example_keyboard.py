"""The keyboard expert of `examples/experts`: keys map to actions, and one key press is one step in MiniGrid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from demo_cases import example

from duetto.demonstrations import RecordedGame, RecordingEndedError, record
from duetto.environments import VecEnv, make

pygame: Any = pytest.importorskip("pygame")
player: Any = example("keyboard")
keys_for, Keys, Keyboard = player.keys_for, player.Keys, player.Keyboard


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.fixture
def keyboard() -> Iterator[Callable[..., Any]]:
    """Return a function that makes a Keyboard with scripted keys: one list of keys per poll, then Escape."""
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


def record_until_escape(player: Any, stepper: VecEnv, episodes: int) -> list[RecordedGame]:
    games: list[RecordedGame] = []
    with pytest.raises(RecordingEndedError):
        games.extend(record(player, stepper, episodes, seed=0))
    return games


def test_one_press_is_one_step_in_minigrid(keyboard: Callable[..., Any]):
    stepper = make("MiniGrid-Empty-5x5-v0", render_mode="rgb_array")
    keys = keys_for("MiniGrid-Empty-5x5-v0", stepper)
    player = keyboard(stepper, keys, ["up"], [], ["up", "right"], ["f"], ["up"], ["up"], ["left"])
    (game,) = record_until_escape(player, stepper, 2)
    assert game.demonstrations[0].action.tolist() == [2, 2, 1, 2, 2]
    assert game.score == pytest.approx(1 - 0.9 * 5 / 100)


def test_atari_keys_map_to_actions():
    pytest.importorskip("ale_py")
    stepper = make("ALE/Pong-v5", render_mode="rgb_array", kwargs={"clip_rewards": True})
    keys = keys_for("ALE/Pong-v5", stepper)
    assert keys.otherwise == 0
    assert (keys.actions["space"], keys.actions["d"], keys.actions["d+space"]) == (1, 2, 4)
