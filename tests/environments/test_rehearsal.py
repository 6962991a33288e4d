"""State that cannot be seen is found by trying; state that can be seen comes back."""

from __future__ import annotations

import copy
import os
import random
import sys
import time
from typing import Any

import gymnasium
import hidden_environments as hidden
import numpy as np
import pytest
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.vector import SyncVectorEnv
from resuming import assert_equal, plain, record
from scripted_environments import Opaque, Unsure

from duetto.environments import Rehearsal, Stepper, make
from duetto.environments import state as states
from duetto.environments.rehearsal import MOST

SAVED = [
    hidden.OfActionSpace,
    hidden.OfObservationSpace,
    hidden.OfNumpy,
    hidden.OfRandom,
    hidden.OfOlderGenerators,
    hidden.OfSlots,
    hidden.OfMetadata,
    hidden.OfText,
]


def rehearsed(environment: Any, patience: float = 60.0, **options: Any) -> tuple[bool | None, list[str]]:
    """What is found out about an environment, and said."""
    stepper, notices, actions = make(environment, **options), [], np.random.default_rng(1)
    rehearsal = Rehearsal(stepper, notices, environment, **options)
    stepper.reset(5)
    record(stepper, actions, 60)
    rehearsal.begin(stepper.state_dict())
    record(stepper, actions, 260)
    rehearsal.look(patience)
    rehearsal.close()
    stepper.close()
    return rehearsal.exact, notices


# ------------------------------------------------------------------------------------------------ found
HIDDEN = [
    (hidden.make_with_closure, "(as loading it says)"),
    (hidden.OfFunction, "at step 1 "),
    (hidden.OfClass, "at step 1 "),
    (hidden.OfModule, "at step 1 "),
    (hidden.OfResets, "(the next episode's first observation differed at step 40 "),
    pytest.param(hidden.OfC, "", marks=pytest.mark.skipif(sys.platform == "win32", reason="another C library")),
]


@pytest.mark.parametrize(("environment", "finding"), HIDDEN)
def test_state_that_is_not_saved_is_found(environment: Any, finding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden, "_TOTAL", [0])  # a module's outlives the tests before
    exact, notices = rehearsed(environment)
    assert exact is False
    [notice] = notices
    assert "does not come back exactly from its saved state" in notice
    assert finding in notice
    assert "resuming this run begins new episodes" in notice


def test_state_outside_is_found_in_subprocesses_and_vector_environments() -> None:
    assert rehearsed(hidden.OfClass, num_envs=2, vectorization="subprocess")[0] is False
    assert rehearsed(SyncVectorEnv([hidden.OfClass, hidden.OfClass]))[0] is False


def test_what_is_defined_in_a_script_goes_along() -> None:
    class Local(hidden.Plain):
        pass

    gymnasium.register("HiddenLocal-v0", entry_point=Local)
    try:
        assert rehearsed("HiddenLocal-v0") == (True, [])
    finally:
        del gymnasium.registry["HiddenLocal-v0"]


def test_a_known_class_under_an_id_that_wraps_it_is_tried_too() -> None:
    """What the wrapper keeps is nothing that the tests of the class have compared."""
    pendulum = "gymnasium.envs.classic_control.pendulum:PendulumEnv"
    wrapper = gymnasium.envs.registration.WrapperSpec("Drift", "hidden_environments:Drift", {})
    gymnasium.register("HiddenPendulum-v0", entry_point=pendulum, max_episode_steps=40)
    gymnasium.register("HiddenDrift-v0", pendulum, max_episode_steps=40, additional_wrappers=(wrapper,))
    try:
        assert Rehearsal(make("HiddenPendulum-v0"), [], "HiddenPendulum-v0").exact is True
        exact, [notice] = rehearsed("HiddenDrift-v0")
        assert exact is False
        assert "does not come back exactly" in notice
    finally:
        del gymnasium.registry["HiddenPendulum-v0"], gymnasium.registry["HiddenDrift-v0"]


def test_what_is_restored_by_a_state_dict_of_its_own_is_believed_only_if_it_is_so() -> None:
    assert rehearsed(Unsure)[0] is False


def test_the_run_is_not_disturbed() -> None:
    """Neither its steps nor the generators and classes that the environments share with it."""
    traces, left = [], []
    for watched in (False, True):
        hidden.OfClass.total = 0
        np.random.seed(0)
        random.seed(0)
        stepper, actions = make(Mixed), np.random.default_rng(1)
        rehearsal = Rehearsal(stepper, [], Mixed)
        stepper.reset(5)
        record(stepper, actions, 60)
        state = stepper.state_dict()
        if watched:
            rehearsal.begin(state)
        traces.append(record(stepper, actions, 220))
        rehearsal.look(60.0)
        traces[-1] += record(stepper, actions, 20)
        left.append((hidden.OfClass.total, random.random(), float(np.random.random())))
    assert rehearsal.exact is False
    assert_equal(*traces)
    assert left[0] == left[1]


class Mixed(hidden.Everything):
    def _number(self) -> float:
        return super()._number() + hidden.OfClass._number(self)


def test_what_changes_at_resets_is_looked_at_when_an_episode_has_ended() -> None:
    stepper, actions = make(hidden.OfResets), np.random.default_rng(1)
    rehearsal = Rehearsal(stepper, [], hidden.OfResets)
    stepper.reset(5)
    for steps, watched in ((49, False), (1, True)):
        record(stepper, actions, steps)
        rehearsal.begin(stepper.state_dict())
        assert (stepper.watcher is not None) is watched
    rehearsal.close()


def test_after_a_resume_an_episode_has_to_end_in_this_process():
    stepper, actions = make(hidden.OfResets), np.random.default_rng(1)
    stepper.reset(5)
    record(stepper, actions, 70)
    again = make(hidden.OfResets)
    again.load_state_dict(stepper.state_dict())
    rehearsal = Rehearsal(again, [], hidden.OfResets)
    rehearsal.recall(None)
    for steps, watched in ((29, False), (1, True)):
        record(again, actions, steps)
        rehearsal.begin(again.state_dict())
        assert (again.watcher is not None) is watched
    rehearsal.close()


def test_one_whose_episodes_do_not_end_is_looked_at_all_the_same() -> None:
    stepper, actions = make(Endless), np.random.default_rng(1)
    rehearsal = Rehearsal(stepper, [], Endless)
    stepper.reset(5)
    record(stepper, actions, MOST)
    rehearsal.begin(stepper.state_dict())
    assert stepper.watcher is None
    record(stepper, actions, 1)
    rehearsal.begin(stepper.state_dict())
    assert stepper.watcher is not None
    rehearsal.close()


def test_what_cuts_it_short_leaves_the_rest_to_other_checkpoints() -> None:
    """Evaluations after 10 steps: what changes at resets alone is not believed to come back, but looked at again."""
    stepper, actions, notices = make(hidden.OfResets), np.random.default_rng(1), list[str]()
    rehearsal = Rehearsal(stepper, notices, hidden.OfResets)
    stepper.reset(5)
    record(stepper, actions, 60)
    for steps, finding in ((10, None), (45, False)):  # episodes are of 50 steps
        rehearsal.begin(stepper.state_dict())
        record(stepper, actions, steps)
        rehearsal.end()
        assert rehearsal._process is not None
        rehearsal._process.wait(60.0)
        rehearsal.look()
        assert rehearsal.exact is finding
    assert len(notices) == 1
    rehearsal.close()


def test_short_looks_add_up() -> None:
    stepper, actions, notices = make(hidden.Plain), np.random.default_rng(1), list[str]()
    rehearsal = Rehearsal(stepper, notices, hidden.Plain)
    stepper.reset(5)
    record(stepper, actions, 60)
    for seen in (None, None, True):
        rehearsal.begin(stepper.state_dict())
        record(stepper, actions, 90)
        rehearsal.end()
        rehearsal._process.wait(60.0)
        rehearsal.look()
        assert (rehearsal.exact, notices) == (seen, [])
    rehearsal.close()


def test_too_little_is_said_at_the_end() -> None:
    stepper, actions, notices = make(hidden.Plain), np.random.default_rng(1), list[str]()
    rehearsal = Rehearsal(stepper, notices, hidden.Plain)
    stepper.reset(5)
    record(stepper, actions, 60)
    rehearsal.begin(stepper.state_dict())
    record(stepper, actions, 5)
    rehearsal.look(60.0)
    assert rehearsal.exact is None
    [notice] = notices
    assert notice.endswith("not known: nothing differed in 5 steps, but no episode ended in them.")


def test_a_machine_without_room_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("duetto.environments.rehearsal.pickle.dump", full)
    exact, [notice] = rehearsed(hidden.Plain)
    assert exact is None
    assert notice.endswith("is not known: no other process could be asked ([Errno 28] No space left on device).")


class Endless(hidden.Plain):
    def step(self, action: Any) -> Any:
        self.time = 0
        return super().step(action)


# ------------------------------------------------------------------------------------------------ not known
def test_what_cannot_be_handed_over_is_said() -> None:
    class Unpicklable(hidden.Plain):
        def __reduce__(self) -> Any:
            raise TypeError("holds a door")

    exact, notices = rehearsed(Unpicklable())
    assert exact is None
    [notice] = notices
    assert notice.endswith("is not known: it cannot be handed to another process (TypeError: holds a door).")


@pytest.mark.parametrize("failing", [lambda: {}["door"], lambda: os._exit(3)])
def test_a_process_that_fails_is_said(failing: Any) -> None:
    here = os.getpid()

    def only_here() -> gymnasium.Env:
        return hidden.Plain() if os.getpid() == here else failing()

    exact, [notice] = rehearsed(only_here)
    assert exact is None
    assert "is not known: " in notice
    assert "KeyError: 'door'" in notice or "its process ended with 3" in notice


def test_one_that_hangs_is_given_up() -> None:
    here = os.getpid()

    def only_here() -> gymnasium.Env:
        if os.getpid() != here:
            time.sleep(1000.0)
        return hidden.Plain()

    exact, [notice] = rehearsed(only_here, patience=1.0)
    assert exact is None
    assert notice.endswith("is not known: finding out took longer than 1 seconds.")


def test_what_cannot_be_saved_is_said_once() -> None:
    stepper, notices = make(Opaque), []
    rehearsal = Rehearsal(stepper, notices, Opaque)
    stepper.reset(0)
    for _ in range(2):
        record(stepper, np.random.default_rng(0), 3)
        rehearsal.begin(stepper.state_dict())
    [notice] = notices
    assert notice.startswith("The state of Opaque cannot be saved (")
    assert "Opaque." in notice.partition("(")[2]  # the attribute
    assert notice.endswith(
        "with state_dict() and load_state_dict() it can save itself): resuming this run begins new episodes."
    )


def test_an_evaluation_ends_the_watch() -> None:
    stepper, notices, actions = make(hidden.Plain), [], np.random.default_rng(1)
    rehearsal = Rehearsal(stepper, notices, hidden.Plain)
    stepper.reset(5)
    rehearsal.begin(stepper.state_dict())
    assert stepper.watcher is None  # a new environment is like another: that would show nothing
    record(stepper, actions, 60)
    rehearsal.begin(stepper.state_dict())
    rehearsal.end()  # nothing seen yet: at the next checkpoint
    record(stepper, actions, 3)
    rehearsal.begin(stepper.state_dict())
    record(stepper, actions, 3)
    rehearsal.end()
    assert stepper.watcher is None
    rehearsal.look(60.0)
    assert rehearsal.exact is None  # three steps and no episode's end
    assert len(notices) == 1


# ------------------------------------------------------------------------------------------------ restored
def check_restored(environment: Any) -> None:
    """What was recorded after a saving comes again, in an environment that has been elsewhere, from what was saved."""
    first, second = make(environment), make(environment)
    second.reset(77)
    first.reset(3)
    actions = np.random.default_rng(0)
    record(first, actions, 60)
    state, numbers = first.state_dict(), actions.bit_generator.state
    plain(state)
    expected = record(first, actions, 120)
    record(second, actions, 17)
    actions.bit_generator.state = numbers
    second.load_state_dict(state)
    assert second.resumed_exactly
    assert_equal(expected, record(second, actions, 120))
    assert len({float(arrays[3][0]) for arrays, _ in expected}) > 3  # the rewards tell numbers apart


@pytest.mark.parametrize("environment", SAVED)
def test_state_that_is_saved_comes_back(environment: Any) -> None:
    check_restored(environment)


def test_it_comes_back_in_another_process() -> None:
    assert rehearsed(hidden.Everything, num_envs=2) == (True, [])


def test_global_generators_come_back_in_subprocesses() -> None:
    assert rehearsed(hidden.OfNumpy, num_envs=2, vectorization="subprocess") == (True, [])


def test_a_generator_with_two_owners_is_not_savable() -> None:
    class Sharing(hidden.Plain):
        def reset(self, **kwargs: Any) -> Any:
            seen = super().reset(**kwargs)
            self.action_space._np_random = self.np_random
            return seen

    stepper = make(Sharing)
    stepper.reset(0)
    assert stepper.state_dict()["environments"] is None


# ------------------------------------------------------------------------------------------------ MuJoCo's model
class Randomised(HalfCheetahEnv):
    """Other masses, frictions and gravity in each episode."""

    def reset_model(self) -> np.ndarray:
        self.model.body_mass[1:] = self.np_random.uniform(3.0, 9.0, self.model.nbody - 1)
        self.model.geom_friction[:, 0] = self.np_random.uniform(0.2, 0.9)
        self.model.opt.gravity[2] = self.np_random.uniform(-12.0, -7.0)
        self.model.opt.timestep = self.np_random.uniform(0.008, 0.012)
        return super().reset_model()


def randomised() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Randomised(), 40)


def test_edits_of_mujocos_model_come_back() -> None:
    check_restored(randomised)


def test_only_edited_arrays_of_a_model_are_saved() -> None:
    def models(environment: Any) -> dict[str, Any]:
        stepper: Stepper = make(environment)
        stepper.reset(0)
        layers = stepper.state_dict()["environments"]["0"]
        return layers[max(layers.keys() - {"generators"})]["mjmodel"]["model"]["changed"]

    assert models("HalfCheetah-v5") == {}
    assert models(randomised).keys() == {"body_mass", "geom_friction", "opt.gravity", "opt.timestep"}


def test_a_model_in_the_place_of_the_one_it_was_made_with_is_saved_as_it_is() -> None:
    environment = HalfCheetahEnv()
    states.remember(environment)
    environment.model = copy.copy(environment.model)
    environment.model.body_mass[1] = 5.0
    saved: Any = states.save(environment)
    assert saved["0"]["mjmodel"]["model"]["changed"]["body_mass"][1] == 5.0


def test_an_edit_that_the_saved_model_does_not_have_is_no_exact_return() -> None:
    class Damped(Randomised):
        """A new one is different from its first moment on: its file was changed, say."""

        damping = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.model.dof_damping[:] = Damped.damping

    first = make(Damped)
    first.reset(0)
    record(first, np.random.default_rng(0), 5)
    state = first.state_dict()
    Damped.damping = 2.0
    second = make(Damped)
    second.load_state_dict(state)
    assert not second.resumed_exactly
