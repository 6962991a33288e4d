"""Replay of a demonstration from its seed, and the errors if that is impossible."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo_cases import AlternatingExpert, Diary, diary

from duetto import demonstrations
from duetto.demonstrations import Demonstrations, EpisodePlayer, Metadata, record
from duetto.environments import VecEnv
from duetto.environments.atari import AtariOptions
from duetto.environments.engines import SyncEngine
from duetto.environments.learner_view import LearnerView
from duetto.errors import UsageError


def record_demos(tmp_path: Path, stepper: VecEnv, known: bool = True) -> Demonstrations:
    about = Metadata("Diary-v0", {}, "someone", stepper.observation_space, stepper.action_space)
    with demonstrations.writer(tmp_path / "demos", about) as writer:
        for game in record(AlternatingExpert(), stepper, 4, seed=1):
            for part, demo in enumerate(game.demonstrations):
                writer.add(demo, game.seed if known else None, part)
    return demonstrations.load(tmp_path / "demos")


def replay(found: Demonstrations, number: int, stepper: VecEnv) -> tuple[EpisodePlayer, list[int]]:
    again, actions = EpisodePlayer(found, number), []
    stepper.reset(again.seed)
    ended = False
    while not ended:
        action = again(stepper.obs)
        actions.append(int(action[0]))
        ended = bool(stepper.step(action)[1])
    return again, actions


def test_replay_repeats_every_action(tmp_path: Path):
    found = record_demos(tmp_path, diary())
    again, actions = replay(found, 2, diary())
    assert again.seed == 3
    assert actions == found.episodes[2].action.tolist() == [1, 0, 1, 0]
    assert again.finished


def test_replay_of_a_life_starts_with_its_game(tmp_path: Path):
    def mortal() -> VecEnv:
        return VecEnv(LearnerView(SyncEngine([Diary(lives=True)]), AtariOptions(episodic_life=True), True, False))

    found = record_demos(tmp_path, mortal())
    number = found.seeds.index(3)
    assert (found.seeds[number : number + 2], found.parts[number : number + 2]) == ([3, 3], [0, 1])
    for asked in (number, number + 1):
        again, actions = replay(found, asked, mortal())
        assert actions == [1, 0, 1, 0]
        assert again.finished


def test_diverging_replay_is_refused(tmp_path: Path):
    found = record_demos(tmp_path, diary())
    again, stepper = EpisodePlayer(found, 2), diary()
    stepper.reset(again.seed)
    stepper.step(again(stepper.obs))
    stepper.step(1 - again(stepper.obs))
    with pytest.raises(UsageError, match=r"Episode 2 .*cannot be replayed: at step 2 "):
        again(stepper.obs)


def test_replay_without_a_seed_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="its seed is unknown"):
        EpisodePlayer(record_demos(tmp_path, diary(), known=False), 0)


@pytest.mark.parametrize("number", [-1, 4])
def test_replay_of_a_missing_episode_is_refused(tmp_path: Path, number: int):
    with pytest.raises(UsageError, match=f"no episode {number}. .* has 0 to 3"):
        EpisodePlayer(record_demos(tmp_path, diary()), number)
