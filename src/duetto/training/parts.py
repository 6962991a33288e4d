"""The parts that a session joins: made from its config, and what a checkpoint holds of them.

stepper       the environments
collector     acts in them, as the learner does or one step behind it
normalizer    scales what they observe
memory        keeps what was collected, and gives batches
learner       learns from these
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from duetto import demonstrations, environments, learners, memory, own_modules
from duetto.environments.spaces import far_from_zero
from duetto.errors import CheckpointError
from duetto.functional import randomness
from duetto.functional.randomness import generator
from duetto.learners import dealing
from duetto.learners.behind import Behind
from duetto.learners.parameters import Parameters
from duetto.networks import encoding, masks, spaces
from duetto.networks.specs import Parameter
from duetto.storage.checkpoint import Loaded
from duetto.storage.config import RECORDED, Config
from duetto.storage.segments import Segment
from duetto.training import resuming
from duetto.training.collector import Source
from duetto.training.normalizer import Normalizer, RewardScaler
from duetto.training.place import Place

WATCHED = tuple(name.replace("-", "_") for name in RECORDED)  # by their versions


class Parts:
    """The parts of one session. They know nothing of its steps, its folder and its callbacks.

    Attributes:
        stepper, learner, memory, normalizer, collector: See above.
        behind: What acts in the learner's place, one step behind it; None: the learner acts itself.
        rehearsal: Finds out whether the environments come back exactly from their saved state.
    """

    stepper: environments.Stepper
    rehearsal: environments.Rehearsal
    learner: learners.Learner
    behind: Behind | None
    memory: resuming.AnyMemory
    normalizer: Normalizer
    collector: Source

    def __init__(
        self,
        config: Config,
        environment: Any,
        place: Place,
        build_learner: Callable[..., learners.Learner],
        notices: list[str],
        kept: Callable[[], memory.Kept | None],
    ) -> None:
        """Make the parts. Sentences for the user go to `notices`; `kept` gives the memory in the newest checkpoint."""
        self._config, self._environment, self._notices = config, environment, notices
        self._masked = False  # whether the memory has room for masks of allowed actions
        self._said_shared = False
        with ExitStack() as opened:  # what is open already is closed if a later part cannot be made
            self._make(place, build_learner, kept, opened)
            self._opened = opened.pop_all()

    def _make(
        self,
        place: Place,
        build_learner: Callable[..., learners.Learner],
        kept: Callable[[], memory.Kept | None],
        opened: ExitStack,
    ) -> None:
        config, options, environment = self._config, self._config.run, self._environment
        how: dict[str, Any] = {
            "num_envs": options.num_envs,
            "vectorization": options.vectorization,
            "worker_timeout": options.worker_timeout,
            "engine": options.engine,
            "kwargs": config.environment_options,
        }
        self.stepper = place.make_stepper(config, environment, self._notices, **how)
        if not environments.is_instance(environment):  # that one is the user's to close
            opened.callback(self.stepper.close)
        self.rehearsal = environments.Rehearsal(self.stepper, self._notices, environment, **how)
        opened.callback(self.rehearsal.close)
        self.learner = self._make_learner(place, build_learner)
        opened.callback(self.learner.close)
        self.behind = Behind(self.learner) if options.act_behind else None
        self._goals, self._elsewhere = self._make_goals(opened), self._make_shards(place, kept, opened)
        self.normalizer = Normalizer(self.stepper.observation_space, *config.algorithm.observation_scaling())
        self._look_at_observations()
        self.memory = self._make_memory(self.normalizer.kept(self.stepper.observation_space))
        self.collector = place.make_source(config, self.stepper, self.behind or self.learner, self.normalizer)
        self._made_of = self._origins()
        self._modules = own_modules.checksums(self._made_of, WATCHED)

    def _origins(self) -> set[str]:
        """Names of the modules that environments, algorithm and networks come from."""
        networks = self._config.algorithm.custom_networks().values()
        own = (type(self._config.algorithm), *(kind for one in networks for kind in (one.torch, one.jax) if kind))
        names = {kind.__module__ for one in own for kind in one.__mro__}
        return names | environments.modules_of(self._environment, self.stepper.environments)

    def _look_at_observations(self) -> None:
        """Give notice if observations will not be scaled, or not taken as images, though that seems to be meant."""
        if self.normalizer.idle:
            self._notices.append(self.normalizer.idle)
        if not self._config.algorithm.custom_networks():  # which may well take them as images
            self._notices.extend(encoding.flattened_images(self.stepper.observation_space))

    def _make_learner(self, place: Place, build: Callable[..., learners.Learner]) -> learners.Learner:
        options, algorithm, stepper = self._config.run, self._config.algorithm, self.stepper
        observation, action = stepper.observation_space, stepper.action_space
        algorithm.check_spaces(observation, action, self._config.environment)
        assert options.backend != "auto"
        assert options.device != "auto"
        dealing.check(algorithm, observation, action, options.learners, stepper.num_envs, options.backend)
        made = build(
            options.backend,
            algorithm,
            observation,
            action,
            seed=options.seed,
            device=options.device,
            precision=options.precision,
            threads=options.threads,
            ranks=options.learners,
            machines=place.machines(self._config, stepper) if options.learners > 1 else None,
        )
        if made.backend == "jax" and 0 < options.threads != made.threads > 0:
            self._notices.append(
                f"JAX had begun in this process with {made.threads} thread{'s' * (made.threads > 1)}, and the run has "
                f"these, not the {options.threads} that it asks for: its last bits may differ. In a new process it has "
                f"{options.threads}."
            )
        return made

    # ------------------------------------------------------------------------------------------------ the memory
    def _make_memory(self, seen: spaces.Space) -> resuming.AnyMemory:
        stepper, random = self.stepper, generator(self._config.run.seed, "memory")
        experts = self._demonstrations()
        self._randoms = [random] if experts is None else [random, experts.random, experts.own_random]
        made = memory.build(
            self._config.algorithm.memory(),
            seen,
            stepper.action_space,
            stepper.num_envs,
            random,
            lambda obs: self.learner.value(self.normalizer.scaled(obs)),
            stacked=stepper.stacked,
            demonstrations=experts,
            goals=self._goals,
            elsewhere=self._elsewhere,
        )
        if isinstance(made, memory.Rollout):
            made.values_anew = stepper.older
        if self.learner.twins is not None and self.learner.ranks == 1:
            said = self.learner.twins.keep(made.image_tables())
            self._notices.extend(one for one in said if one not in self._notices)
        return made

    def _make_goals(self, opened: ExitStack) -> environments.Goals | None:
        """The environment that hindsight asks for rewards, or None. The run's own may live in other processes."""
        if getattr(self._config.algorithm.memory(), "hindsight", None) is None:
            return None
        apart = environments.separate(self._environment, kwargs=self._config.environment_options)
        self._notices.extend(apart.notices)
        goals = environments.Goals(apart)
        opened.callback(goals.close)
        return goals

    def _make_shards(
        self, place: Place, kept: Callable[[], memory.Kept | None], opened: ExitStack
    ) -> memory.Elsewhere | None:
        """The shards that hold the replay memory; None if it is in this process."""
        shards = place.make_shards(self._config, self.stepper)
        if shards is None:
            return None
        opened.callback(shards.close)
        return memory.Elsewhere(shards, kept)

    def _demonstrations(self) -> memory.Episodes | None:
        folder, seed = self._config.algorithm.demonstration_folder(), self._config.run.seed
        if not folder:
            return None
        found, stepper = demonstrations.load(folder), self.stepper
        self._notices.extend(found.notices)
        spaces_here = (stepper.observation_space, stepper.action_space)
        demonstrations.check_fits(found, *spaces_here, self._config.environment, self._config.environment_options)
        randoms = (generator(seed, "demonstrations"), generator(seed, "which demonstrations"))
        return memory.Episodes(found.episodes, *randoms, found.lengths.tolist())

    def _remember_masks(self) -> None:
        """Make the memory anew, with room for masks of allowed actions: only an environment's first info shows whether
        it gives any. UsageError if the algorithm cannot learn with masks.
        """
        self._config.algorithm.check_masks(self._config.environment)
        self._masked = True
        del self.memory  # first: two have no room, perhaps
        observation = self.normalizer.kept(self.stepper.observation_space)
        self.memory = self._make_memory(masks.space(observation, self.stepper.action_space))

    # ------------------------------------------------------------------------------------------------ episodes
    def reset(self) -> None:
        """Begin the first episodes."""
        self.stepper.reset(self._config.run.seed)
        self._notices.extend(far_from_zero(self.stepper.obs))
        self._heed_masks()

    def _heed_masks(self) -> None:
        """Look for masks of allowed actions, once the environments have begun: make room for them, or give notice."""
        allowing = self.stepper.engine.allowing
        if allowing is not None and allowing.ignored:
            self._notices.append(
                f"{self.stepper.name} gives an info['action_mask']; its actions are numbers, of which a mask says "
                "nothing: it is ignored."
            )
        elif not self.stepper.masked and (unread := self._unread_mask()):
            self._notices.append(
                f"{self.stepper.name} has {unread}: every action counts as allowed. If it says which actions are, give "
                "it as info['action_mask'] in each reset and step."
            )
        if self.stepper.masked and not self._masked:
            self._remember_masks()
        elif self._masked and not self.stepper.masked:
            raise CheckpointError(
                f"What this run goes on from had masks of allowed actions; {self.stepper.name} gives no "
                "info['action_mask'] now. Give one, or begin anew."
            )

    def _unread_mask(self) -> str:
        """What the environment has that other libraries read as a mask of allowed actions, in words; "" if nothing."""
        stepper, allowing = self.stepper, self.stepper.engine.allowing
        if any(env.has_wrapper_attr("action_masks") for env in stepper.environments):
            return "a method action_masks, which is not read"
        if allowing is not None and allowing.misnamed:
            return f"an info[{allowing.misnamed!r}], which is not read"
        if part := masks.part_of(stepper.observation_space, stepper.action_space):
            return f"a part {part!r} of its observations, which networks see as any other"
        return ""

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Note that all environments, or those in `envs` (N,) bool, began new episodes though the last did not end."""
        self.memory.interrupt(envs)
        self.collector.interrupt(envs)

    def set_attr(self, name: str, value: Any) -> None:
        """See `Session.set_attr`."""
        self.rehearsal.end()  # its process would not do this
        new = name not in self.stepper.attributes
        self.stepper.set_attr(name, value)
        if new:
            self.rehearsal.doubt()
        if self._goals is not None:
            self._goals.set_attr(name, value)

    def rehearse(self, saved: dict[str, Any]) -> None:
        """Begin to find out whether the environments come back from the stepper's state of a checkpoint."""
        # There are others in this process that learn side by side, and draw from the same generators.
        if self.learner.seeds > 1 and environments.draw_globally(saved["environments"]):
            if not self._said_shared:
                self._said_shared = True
                self._notices.append(
                    f"{self.stepper.name} draws from Python's or NumPy's global generators, which all seeds in this "
                    "process share: they are not what they would be alone. duetto sweep gives each a process of its "
                    "own."
                )
            return
        self.rehearsal.begin(saved)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def acting_state(self) -> dict[str, Any]:
        """The state that acting needs: parameters, observation scaling and spaces."""
        return {
            "learner": {"parameters": self.learner.parameters()},
            "normalizer": self.normalizer.state_dict(),
            "spaces": {
                "observation": spaces.to_json(self.stepper.observation_space),
                "action": spaces.to_json(self.stepper.action_space),
                "action_dtype": self.stepper.action_dtype,
                "action_mask": self._masked,
                "action_structure": environments.structure(self.stepper.engine.single_action_space),
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """The state that resuming needs besides `acting_state`, with the whole learner's state; no transitions."""
        self._modules = own_modules.checksums(self._made_of, WATCHED, self._modules)  # some are imported late
        return {
            "learner": self.learner.state_dict(),
            **({"acting": self.behind.state_dict()} if self.behind is not None else {}),
            "memory": self.memory.state_dict(),
            "collector": self.collector.state_dict(),
            "stepper": self._stepper_state(),
            "modules": self._modules,
            **({"goals": {"changed": True}} if self._goals is not None and self._goals.changed else {}),
        }

    def _stepper_state(self) -> dict[str, Any]:
        state = self.stepper.state_dict()
        # Environments that would go on elsewhere are not saved: better new episodes, and a word about it.
        return state | {"environments": None} if self.rehearsal.exact is False else state

    def load_state_dict(self, state: dict[str, Any], segments: Iterable[Segment]) -> None:
        """Undo `acting_state` and `state_dict`, and load the memory's segments. CheckpointError if they do not fit."""
        if state["spaces"].get("action_mask"):
            self._remember_masks()
        self.learner.load_state_dict(state["learner"])
        if self.behind is not None:
            self.behind.load_state_dict(state.get("acting", {}))  # nothing, where the run did not act so before
        self._load_statistics(state)
        if self.normalizer.stored and self.normalizer.left_alone:  # whose memory holds floats here, and bytes there
            raise CheckpointError(
                "The checkpoint is of a version of Duetto that did not scale bytes. Resume with that version, or begin "
                "anew."
            )
        self._load_memory(state["memory"], segments)
        self.collector.load_state_dict(state["collector"])
        self.stepper.load_state_dict(state["stepper"])
        if self.stepper.unset and not self.stepper.resumed_exactly:
            self._notices.append(
                f"{', '.join(self.stepper.unset)}, which a callback had set in {self.stepper.name}, could not be set "
                "again: its new episodes begin without."
            )
        self._load_goals(state)
        # As they are now. Of environments in other processes, modules may not have been imported in this one.
        self._modules = {name: own_modules.checksum_now(name) for name in state.get("modules", {})} | self._modules
        if self.stepper.masked != self._masked:
            self._heed_masks()
            raise CheckpointError(f"{self.stepper.name} gives masks of allowed actions, and gave none before.")

    def _load_goals(self, state: dict[str, Any]) -> None:
        """Give the environment that hindsight asks for rewards what callbacks had set in the run's environments."""
        if self._goals is None or not state.get("goals", {}).get("changed"):
            return
        for name, value in self.stepper.attributes.items():
            self._goals.set_attr(name, value)
        if not self._goals.become((state["stepper"]["environments"] or {}).get("0")) and not self.stepper.attributes:
            self._notices.append(
                f"The environment {self._goals.name} that hindsight asks for rewards is as it was made, without what "
                "set_attr had set: set it again in on_start."
            )

    def _load_statistics(self, state: dict[str, Any]) -> None:
        """Load the statistics of observations; parts that an earlier version left unscaled stay so, with a notice."""
        self.normalizer.load_state_dict(state["normalizer"])
        if parts := ", ".join(name or "all" for name in self.normalizer.left_alone):
            self._notices.append(
                f"What this run goes on from has no statistics of {parts} observations, which are bytes: they stay "
                "unscaled, as earlier versions of Duetto left them. Begin anew, from no other run, to have them scaled."
            )

    def _load_memory(self, state: dict[str, Any], segments: Iterable[Segment]) -> None:
        self.memory.load_state_dict(state)
        for segment in segments:
            self.memory.load_segment(segment)

    # ------------------------------------------------------------------------------------------------ fine-tuning
    def begin_from(self, state: dict[str, Any], optimizers: bool) -> None:
        """Begin with the networks, and with `optimizers` their optimisers, of another run's acting or whole state.

        Raises CheckpointError if they, their spaces or their observations' statistics do not fit.
        """
        resuming.check_spaces(state["spaces"], self.stepper, "Choose an environment of the same spaces.")
        self._load_statistics(state)
        self.learner.load_parameters(self._with_fixed(state["learner"]["parameters"]))
        if optimizers:
            self.learner.load_optimizer_state(state["learner"]["optimizers"])
        self._take_over_rewards(state.get("collector", {}).get("rewards"))

    def set_fixed(self) -> None:
        """Set parameters that are not learned, such as a fixed temperature of SAC, to the config's values."""
        self.learner.load_parameters(self._with_fixed(self.learner.parameters()))

    def _with_fixed(self, parameters: Parameters) -> Parameters:
        algorithm, stepper = self._config.algorithm, self.stepper
        specs = algorithm.networks(stepper.observation_space, stepper.action_space)
        learned = algorithm.optimizers().keys() | algorithm.targets().keys()
        fixed = {name: spec for name, spec in specs.items() if isinstance(spec, Parameter) and name not in learned}
        return parameters | {
            name: {"value": np.full(spec.shape, spec.initial, np.float32)} for name, spec in fixed.items()
        }

    def _take_over_rewards(self, theirs: dict[str, Any] | None) -> None:
        if self._config.algorithm.reward_scaling() is None:
            return
        scaler: RewardScaler | None = getattr(self.collector, "rewards", None)  # none where actors have theirs
        if scaler is not None and theirs:
            scaler.take_over(theirs)
            return
        self._notices.append(
            "The other run's statistics of rewards are not taken over, so normalize_rewards begins anew: the value "
            "function has to learn another scale."
        )

    def remember(self, loaded: Loaded) -> None:
        """Begin with another run's memory, whose episodes are over here."""
        if loaded.state["spaces"].get("action_mask"):
            self._remember_masks()
        own = [randomness.state_of(one) for one in self._randoms]  # or runs of several seeds would draw the same items
        self._load_memory(loaded.state["memory"], loaded.segments)
        for one, state in zip(self._randoms, own, strict=True):
            randomness.restore(one, state)
        self.memory.interrupt()

    def close(self) -> None:
        """Release environments and processes."""
        self._opened.close()
