"""The training loop of device environments as one compiled JAX program.

    advance(n)     runs n turns in one call, then returns episodes, metrics and the carry to the host
      a turn, off-policy     act, step, store, and make the updates that are due after this vector step
      a turn, on-policy      collect T vector steps, compute advantages, run all epochs

Data      The carry is a tree of arrays: networks and optimizers with the names of `JaxLearner`, environments,
          observations, exploration noise, running returns, statistics, and the replay buffer. Each call reuses the
          memory of the carry's arrays (donates them) and returns new arrays. The plan contains numbers for each
          turn, which the host computes before the call: learning rates, scheduled values, and the number of
          updates with the kind of each (`Algorithm.phase`).
Invariants  The loop calls the algorithm's own losses, `update`, `collect` and `draw`. Every random number comes from a
          key that is folded from (seed, purpose, vector step, update), or from an environment's own key in the carry.
          So results do not depend on the number of turns in a call.
State     The state is the carry and the numbers of steps and updates. Between calls the learner, the normalizer, the
          memory and `DeviceLoop.carry` hold it. Checkpoints save all of them.
Errors    `check` raises UsageError for options that the loop does not support. If an observation, a reward or a metric
          is NaN or infinite, NonFiniteError is raised after the call.
Reuses    `CompiledUpdate` for each phase, `generalized_advantages`, `n_step_return`, explorers, running statistics,
          and the host's `Schedule`, which decides when updates are due.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from duetto.algorithms.base import Algorithm, RolloutBatch, SequenceSpec
from duetto.buffers.device_replay import DeviceReplay
from duetto.buffers.update_schedule import Schedule
from duetto.environments import Episode
from duetto.environments.device_env import VectorDeviceEnv
from duetto.errors import NonFiniteError, UsageError
from duetto.functional.returns import explained_variance, generalized_advantages
from duetto.functional.running_stats import Moments, initial_moments, normalize, update_moments
from duetto.learners.base import LazyArray, Metrics, Update
from duetto.learners.jax import JaxLearner
from duetto.learners.jax_random import KeyGenerator, purpose_key
from duetto.learners.jax_update import CompiledUpdate
from duetto.learners.multi_seed import SeedGroup, SeedRequest
from duetto.networks.spaces import Space
from duetto.training.metrics import ADVICE, RECENT

MOST_TURNS = 1024  # maximum number of turns in a call
MOST_UPDATES = 2048  # maximum number of updates in a call; they take about a second
MOST_STEPS = 2**20  # maximum number of steps in a call: episodes are returned as arrays of this size
FIRST_UPDATES = 100_000  # the program is compiled for the phases of these updates; a new phase later recompiles it
OBSERVATION, REWARD = "", "reward"  # names of running statistics in the carry

Carry = dict[str, Any]


class Advance(NamedTuple):
    """The results of one call of the compiled loop.

    Attributes:
        metrics: The step and the metrics of each update; on-policy also the explained variance.
        episodes: The last finished episodes, at most RECENT.
        earlier_episodes: Number of episodes that finished in this call before those in `episodes`.
    """

    metrics: list[tuple[int, Metrics, dict[str, float]]]
    episodes: list[Episode]
    earlier_episodes: int


def check(algorithm: Algorithm, environment: str) -> None:
    """Raise UsageError if the compiled loop does not support the algorithm's options."""
    spec = algorithm.memory()
    unsupported = ("target_kl", "recompute_advantages", "hindsight", "demonstrations", "train_at_episode_end")
    missing = {
        "recurrent networks": isinstance(spec, SequenceSpec) or getattr(spec, "recurrent", False),
        "learning_rate_kl": any(one.kl for one in algorithm.optimizers().values()),
        "prioritized replay": getattr(spec, "prioritization", None),
        **{name: getattr(spec, name, None) for name in unsupported},
    }
    if absent := next((name for name, wanted in missing.items() if wanted), None):
        raise UsageError(
            f"The compiled loop of {environment} does not support {algorithm.name()} with {absent} yet. Train without "
            f"{absent}, or step the environments from the host: --backend torch."
        )


class DeviceLoop:
    """The compiled training loop of one run. For each call, the host computes a plan.

    Attributes:
        carry: The carry between two calls, except the parts that the learner, the normalizer and the memory hold.
        vector: The environments.
        replay: The functions of the replay buffer; None for rollouts.
        steps_of_turn: Number of steps in a turn, summed over the environments.
        most_turns: Maximum number of turns in a call.
    """

    STATE: ClassVar[Any] = {}  # empty, because checkpoints save the carry as the environments' state

    def __init__(
        self,
        algorithm: Algorithm,
        learner: JaxLearner,
        vector: VectorDeviceEnv,
        seed: int,
        group: SeedGroup | None = None,
    ) -> None:
        """Prepare the program; the first call of `advance` compiles it. `group` runs several seeds in one program."""
        self._algorithm, self._learner, self._seed, self._group = algorithm, learner, seed, group
        self.vector: VectorDeviceEnv = vector
        self.carry: Carry = {}
        self._spec: Any = algorithm.memory()
        self._explorer = algorithm.explorer()
        self._scaling, self._rewards = algorithm.observation_scaling(), algorithm.reward_scaling()
        self._stores_scaled: bool = self._scaling.mode == "steps"
        self._keys = {name: purpose_key(seed, name) for name in ("exploration", "updates")}
        self._action: Space = vector.env.action_space
        spaces, n = (vector.env.observation_space, self._action), vector.num_envs
        self.replay: DeviceReplay | None = None
        if not self._spec.on_policy:
            self.replay = DeviceReplay(self._spec, *spaces, n)
        self._length = 1 if self.replay else self._spec.steps  # vector steps of a turn
        self.steps_of_turn: int = n * self._length
        due = -(-n // self._spec.train_every) * self._spec.gradient_steps if self.replay else self._spec.epochs
        self._most_due: int = due  # maximum number of updates in a turn
        self.most_turns: int = max(1, min(MOST_TURNS, MOST_UPDATES // due, MOST_STEPS // self.steps_of_turn))
        self._phases: set[int] = set(map(algorithm.phase, range(1, 1 + FIRST_UPDATES)))
        self._updates: dict[int, CompiledUpdate] = {}
        self._run: Any = None

    # ------------------------------------------------------------------------------------------------ on the host
    def first_carry(self, state: Any, obs: Any) -> Carry:
        """Return the initial value of `carry`, from the state and observations of new episodes."""
        n = self.vector.num_envs
        carry: Carry = {
            "env": state,
            "obs": jnp.asarray(obs),
            "noise": jnp.zeros((n, self._explorer.state_size(self._action)), jnp.float32),
            "returns": jnp.zeros(n, jnp.float32),
            "lengths": jnp.zeros(n, jnp.int32),
            "moments": {},
        }
        if self._rewards is not None:
            carry["moments"][REWARD] = on_device(initial_moments((), self._rewards.prior))
            carry["sums"], carry["largest"] = jnp.zeros(n, jnp.float32), jnp.zeros((), jnp.float32)
        return carry

    def advance(self, carry: Carry, turns: int, step: int, horizon: int, schedule: Schedule) -> tuple[Carry, Advance]:
        """Run `turns` turns; return the new carry and the results. The arrays of the old carry cannot be used again.

        `step` is the number of earlier steps; schedules end at the step `horizon`.
        """
        plan, phases = self._plan(turns, step, horizon, schedule)
        if self._run is None or set().union(*phases) - self._phases:
            self._phases.update(*phases)
            self._prepare(carry, plan)
        plan_of_all = plan, np.int32(step // self.vector.num_envs), np.int32(turns)

        def run(each: list[tuple[Carry, Any]]) -> list[tuple[Carry, dict[str, Any]]]:
            return self._run(*zip(*each, strict=True), *plan_of_all)

        if self._group is None:
            [(carry, out)] = run([(carry, self._keys)])
        else:
            request = SeedRequest(run, (carry, self._keys), kind=(step, turns))
            carry, out = self._group.request(self._group.seeds.index(self._seed), request)
        out = jax.tree.map(np.asarray, out)
        self._check_finite(out["finite"][:turns], step)
        return carry, Advance(list(self._metrics(out, phases, step)), *_episodes(out, turns))

    def _plan(self, turns: int, step: int, horizon: int, schedule: Schedule) -> tuple[dict[str, Any], list[list[int]]]:
        """Return the plan, as arrays (most_turns, ...), and for each turn the phases (kinds) of its updates."""
        rows, phases, random = [], [], self._algorithm.first_random_steps()
        updates = self._learner.updates
        for turn in range(turns):
            before = step + turn * self.steps_of_turn
            steps = [before + i * self.vector.num_envs for i in range(self._length)]
            if self.replay:
                schedule.advance(self.vector.num_envs, False)
            due = 0 if self.replay else self._spec.epochs
            while self.replay and schedule.take():
                due += 1
            phases.append([self._algorithm.phase(updates + i + 1) for i in range(due)])
            updates += due
            # Rollouts use the scheduled values at their first step; replay uses the values after this vector step.
            progress = min(1.0, (before + self.steps_of_turn if self.replay else before) / horizon)
            rows.append(
                {
                    "explore": np.stack([self._explorer.schedule(s, horizon, self.vector.num_envs) for s in steps]),
                    "random": np.array([s < random for s in steps]),
                    "due": np.int32(due),
                    "phase": np.array(phases[-1] + [phases[-1][-1] if due else 0] * (self._most_due - due), np.int32),
                    "rates": self._learner.learning_rates(progress),
                    "scheduled": self._algorithm.scheduled(progress),
                }
            )
        self._learner.updates = updates
        rows += rows[-1:] * (self.most_turns - turns)
        return jax.tree.map(_stacked, *rows), phases

    def _metrics(
        self, out: dict[str, Any], phases: list[list[int]], step: int
    ) -> Iterator[tuple[int, Metrics, dict[str, float]]]:
        for turn, of_turn in enumerate(phases):
            after = step + (turn + 1) * self.steps_of_turn
            for number, phase in enumerate(of_turn):
                names = self._updates[phase].names
                values = LazyArray(out["values"][turn, number, : len(names)])
                first = number == 0 and "explained" in out
                info = {"explained_variance": float(out["explained"][turn])} if first else {}
                yield after, Metrics(names, values, None), info

    def _check_finite(self, finite: np.ndarray, step: int) -> None:
        if not finite.all():
            at = step + int(finite.argmin()) * self.steps_of_turn
            raise NonFiniteError(
                f"An observation or a reward is NaN or infinite after step {at}: the environment has an error, or "
                f"learning has diverged. {ADVICE}"
            )

    # ------------------------------------------------------------------------------------------------ the program
    def _advance_each(self, carries: list[Carry], keys: list[Any], *plan: Any) -> list[tuple[Carry, dict[str, Any]]]:
        """Run the same turns for one or several seeds; return the result of `_advance` for each seed.

        `vmap` leaves the plan unbatched, because it is the same for all seeds. So loops and branches on the plan's
        numbers stay loops and branches.
        """
        if len(carries) == 1:
            return [self._advance(carries[0], keys[0], *plan)]
        stacked = jax.tree.map(lambda *rows: jnp.stack(rows), *zip(carries, keys, strict=True))
        every = jax.vmap(self._advance, in_axes=(0, 0, None, None, None))(*stacked, *plan)
        return [jax.tree.map(itemgetter(number), every) for number in range(len(carries))]

    def _advance(
        self, carry: Carry, keys: dict[str, Any], plan: dict[str, Any], first: Any, turns: Any
    ) -> tuple[Carry, dict[str, Any]]:
        """Run `turns` turns from the vector step `first`; return the carry, and outputs as arrays (most_turns, ...)."""

        def turn(i: Any, state: tuple[Carry, dict[str, Any]]) -> tuple[Carry, dict[str, Any]]:
            carry, out = state
            make = self._replay_turn if self.replay else self._rollout_turn
            own = jax.tree.map(lambda part: part[i], plan) | {"keys": keys}
            carry, row = make(carry, first + i * self._length, own)
            return carry, jax.tree.map(lambda all_, one: all_.at[i].set(one), out, row)

        of_steps = (self.most_turns, *(() if self.replay else (self._length,)), self.vector.num_envs)
        out = {
            "done": jnp.zeros(of_steps, bool),
            "returns": jnp.zeros(of_steps, jnp.float32),
            "lengths": jnp.zeros(of_steps, jnp.int32),
            "finite": jnp.zeros(self.most_turns, bool),
            "values": jnp.zeros((self.most_turns, self._most_due, self._width()), jnp.float32),
        }
        if not self.replay:
            out["explained"] = jnp.zeros(self.most_turns, jnp.float32)
        return jax.lax.fori_loop(0, turns, turn, (carry, out))

    def _collect(self, carry: Carry, step: Any, plan: dict[str, Any]) -> tuple[Carry, dict[str, Any], dict[str, Any]]:
        """Make a vector step; return the carry, a dict with the transitions (N, ...), and outputs for the host."""
        random: Any = KeyGenerator(jax.random.fold_in(plan["keys"]["exploration"], step))
        if self._scaling.mode in ("collected", "steps"):
            carry = self._observe(carry, carry["obs"])
        seen = self._scaled(carry, carry["obs"])
        noise, state = self._explorer.noise(random, carry["noise"], plan["explore"], self._action)
        action, extras = self._algorithm.collect(self._learner.networks(carry["learner"]), seen, noise)
        if self._algorithm.first_random_steps():
            drawn = self.vector.actions.sample(random, self.vector.num_envs)
            action = jnp.where(plan["random"], drawn.astype(action.dtype), action)
        env, result = self.vector.step(carry["env"], action)
        done = result.starts
        returns, lengths = carry["returns"] + result.reward, carry["lengths"] + 1
        outputs = {"done": done, "returns": returns, "lengths": lengths, "finite": _finite(result)}
        transition = {
            "obs": seen if self._stores_scaled else carry["obs"],
            "action": action,
            "reward": result.reward,
            "next_obs": self._scaled(carry, result.next_obs) if self._stores_scaled else result.next_obs,
            "terminated": result.terminated,
            "truncated": result.truncated,
            **extras,
        }
        after = carry | {
            "env": env,
            "obs": result.obs,
            "noise": self._explorer.after_episode(state, done),
            "returns": jnp.where(done, 0.0, returns),
            "lengths": jnp.where(done, 0, lengths),
        }
        if self._rewards is not None:
            after, transition["reward"] = self._scale_reward(after, result.reward, done)
        return after, transition, outputs

    def _replay_turn(self, carry: Carry, step: Any, plan: dict[str, Any]) -> tuple[Carry, dict[str, Any]]:
        one = plan | {"explore": plan["explore"][0], "random": plan["random"][0]}
        carry, transition, outputs = self._collect(carry, step, one)
        assert self.replay is not None
        memory = self.replay.add(carry["memory"], step, transition)
        key = jax.random.fold_in(plan["keys"]["updates"], step)

        def update(i: Any, state: Any) -> Any:
            learner, moments, values = state
            random: Any = KeyGenerator(jax.random.fold_in(key, i))
            batch, moments = self._draw(carry | {"memory": memory, "moments": moments}, step + 1, random)
            learner, own = self._learn(learner, plan, plan["phase"][i], batch, self._algorithm.draw(random, batch))
            return learner, moments, values.at[i].set(own)

        values = jnp.zeros((self._most_due, self._width()), jnp.float32)
        state = carry["learner"], carry["moments"], values
        learner, moments, values = jax.lax.fori_loop(0, plan["due"], update, state)
        return carry | {"learner": learner, "moments": moments, "memory": memory}, outputs | {"values": values}

    def _draw(self, carry: Carry, written: Any, random: Any) -> tuple[Any, Any]:
        """Draw a batch; return it scaled, and the updated statistics. Scale and update as `Normalizer.batch` does."""
        assert self.replay is not None
        batch = self.replay.batch(carry["memory"], written, self.replay.draw(written, self._spec.batch_size, random))
        if self._rewards is not None and self._rewards.sampled:
            variance = Moments(*carry["moments"][REWARD]).variance
            least = carry["largest"] / self._rewards.bound if self._rewards.bound else 0.0
            batch = batch._replace(reward=batch.reward / jnp.maximum(jnp.sqrt(variance + 1e-8), least))
        if self._scaling.mode == "sampled":
            carry = self._observe(carry, batch.obs)
        obs = self._scaled(carry, batch.obs)
        if self._scaling.mode == "sampled":
            carry = self._observe(carry, batch.next_obs)
        return batch._replace(obs=obs, next_obs=self._scaled(carry, batch.next_obs)), carry["moments"]

    def _rollout_turn(self, carry: Carry, step: Any, plan: dict[str, Any]) -> tuple[Carry, dict[str, Any]]:
        carry, batch, raw, outputs = self._rollout(carry, step, plan)
        epoch = partial(self._epoch, batch, plan, jax.random.fold_in(plan["keys"]["updates"], step))
        learner, values = jax.lax.scan(epoch, carry["learner"], jnp.arange(self._spec.epochs))
        carry = carry | {"learner": learner}
        if self._scaling.mode == "rollouts":
            carry = self._observe(carry, raw)
        outputs["finite"] = outputs["finite"].all()
        return carry, outputs | {"values": values, "explained": explained_variance(batch.value, batch.returns)}

    def _rollout(
        self, carry: Carry, step: Any, plan: dict[str, Any]
    ) -> tuple[Carry, RolloutBatch, Any, dict[str, Any]]:
        """Collect a rollout; return the carry, the batch, the batch's raw observations, and outputs for the host."""

        def collect(carry: Carry, inputs: tuple[Any, Any]) -> tuple[Carry, Any]:
            number, own = inputs
            carry, transition, outputs = self._collect(carry, step + number, plan | own)
            final = transition.pop("next_obs")
            final = final if self._stores_scaled else self._scaled(carry, final)
            transition["final_value"] = jax.lax.cond(
                (transition["truncated"] & ~transition["terminated"]).any(),
                lambda: self._value(carry, final),
                lambda: jnp.zeros(len(final), jnp.float32),
            )
            return carry, (transition, outputs)

        own = {name: plan[name] for name in ("explore", "random")}
        carry, (steps, outputs) = jax.lax.scan(collect, carry, (jnp.arange(self._length), own))
        last = self._value(carry, self._scaled(carry, carry["obs"]))
        return carry, *self._batch(carry, steps, last), outputs

    def _batch(self, carry: Carry, steps: dict[str, Any], last: Any) -> tuple[RolloutBatch, Any]:
        """Return the batch, with T·N rows in the order of `buffers.Rollout`, and its raw observations."""
        value, ended = steps["value"], steps["truncated"] & ~steps["terminated"]
        following = jnp.where(ended, steps["final_value"], jnp.concatenate([value[1:], last[None]]))
        ends, spec = (steps["terminated"], steps["truncated"]), self._spec
        advantage = generalized_advantages(steps["reward"], value, following, *ends, spec.discount, spec.trace)
        rows = {name: part.reshape(-1, *part.shape[2:]) for name, part in steps.items()}
        batch = RolloutBatch(
            obs=rows["obs"] if self._stores_scaled else self._scaled(carry, rows["obs"]),
            action=rows["action"],
            log_prob=rows["log_prob"],
            value=rows["value"],
            advantage=advantage.reshape(-1),
            returns=(advantage + value).reshape(-1),
            weight=jnp.ones(value.size, jnp.float32),
        )
        return batch, rows["obs"]

    def _epoch(self, batch: RolloutBatch, plan: dict[str, Any], key: Any, learner: Any, epoch: Any) -> tuple[Any, Any]:
        """Learn once from every row of a rollout; return the learner's state and the minibatches' mean metrics."""
        random: Any = KeyGenerator(jax.random.fold_in(key, epoch))
        rows: Any = self._algorithm.split(random, len(batch.weight))
        noise = self._algorithm.draw(random, batch)
        # Gather all rows of an epoch at once: this is faster than a gather for each minibatch.
        shuffled = jax.tree.map(lambda x: x[rows.reshape(-1)].reshape(*rows.shape, *x.shape[1:]), batch)
        [update] = self._updates.values()

        def step(learner: Any, part: RolloutBatch) -> tuple[Any, Any]:
            changed, values, _ = update.step(learner, part, noise, plan["rates"], plan["scheduled"])
            return learner | changed, values

        learner, values = jax.lax.scan(step, learner, shuffled)
        return learner, values.mean(0)

    # ------------------------------------------------------------------------------------------------ updates
    def _prepare(self, carry: Carry, plan: dict[str, Any]) -> None:
        """Trace the update of every known phase, and create the program, which the next call compiles."""
        one, random = jax.tree.map(lambda part: part[0], plan), KeyGenerator(self._keys["updates"])
        one["keys"] = self._keys
        if self.replay:
            batch = jax.eval_shape(lambda: self._draw(carry, 1, random)[0])
        else:
            whole = jax.eval_shape(lambda: self._rollout(carry, 0, one)[1])
            rows = len(whole.weight) // self._spec.minibatches
            batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype), whole)
        algorithm: Any = self._algorithm
        noise = jax.eval_shape(lambda: algorithm.draw(random, batch))
        rates, scheduled = self._learner.learning_rates(0.0), algorithm.scheduled(0.0)
        self._updates = {
            phase: CompiledUpdate(self._learner, carry["learner"], Update(phase, batch, None, noise, rates, scheduled))
            for phase in sorted(self._phases)
        }
        options = self._learner.compiler_options(len(jax.tree.leaves(batch)[0]))
        self._run = jax.jit(self._advance_each, donate_argnums=0, compiler_options=options)

    def _width(self) -> int:
        return max(len(update.names) for update in self._updates.values())

    def _learn(self, learner: Any, plan: dict[str, Any], phase: Any, batch: Any, noise: Any) -> tuple[Any, Any]:
        """Make one update; return the learner's state, and the metrics padded with zeros to `_width`."""

        def of(update: CompiledUpdate, learner: Any) -> tuple[Any, Any]:
            changed, values, _ = update.step(learner, batch, noise, plan["rates"], plan["scheduled"])
            return learner | changed, jnp.pad(values, (0, self._width() - len(values)))

        branches = [partial(of, update) for update in self._updates.values()]
        if len(branches) == 1:
            return branches[0](learner)
        return jax.lax.switch(jnp.searchsorted(jnp.asarray(list(self._updates)), phase), branches, learner)

    def _value(self, carry: Carry, seen: Any) -> Any:
        return self._algorithm.value(self._learner.networks(carry["learner"]), seen)

    # ------------------------------------------------------------------------------------------------ statistics
    def _observe(self, carry: Carry, obs: Any) -> Carry:
        if OBSERVATION not in carry["moments"]:
            return carry
        moments = update_moments(Moments(*carry["moments"][OBSERVATION]), obs)
        return carry | {"moments": carry["moments"] | {OBSERVATION: moments}}

    def _scaled(self, carry: Carry, obs: Any) -> Any:
        if OBSERVATION not in carry["moments"]:
            return obs
        return normalize(obs, Moments(*carry["moments"][OBSERVATION]), self._scaling.clip)

    def _scale_reward(self, carry: Carry, reward: Any, done: Any) -> tuple[Carry, Any]:
        """Update the reward statistics; return the carry and rewards (N,), scaled unless batches are scaled later."""
        sums = carry["sums"] * self._spec.discount + reward
        moments = update_moments(Moments(*carry["moments"][REWARD]), sums)
        carry = carry | {
            "sums": jnp.where(done, 0.0, sums),
            "largest": jnp.maximum(carry["largest"], jnp.abs(sums).max()),
            "moments": carry["moments"] | {REWARD: moments},
        }
        if self._rewards is not None and self._rewards.sampled:
            return carry, reward
        return carry, jnp.clip(reward / jnp.sqrt(moments.variance + 1e-8), -10.0, 10.0)


def _finite(result: Any) -> Any:
    parts = [part for part in (result.reward, result.next_obs) if jnp.issubdtype(part.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(part).all() for part in parts]).all()


def _stacked(*rows: Any) -> np.ndarray:
    stacked = np.stack(rows)
    return stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked


def on_device(moments: Moments) -> Moments:
    """Return the statistics as float32 arrays of JAX."""
    return Moments(*(jnp.asarray(part, jnp.float32) for part in moments))


def _episodes(out: dict[str, Any], turns: int) -> tuple[list[Episode], int]:
    """Return the last finished episodes, at most RECENT, in order, and the number of earlier ones."""
    envs = out["done"].shape[-1]
    done, returns, lengths = (out[name][:turns].reshape(-1, envs) for name in ("done", "returns", "lengths"))
    ended = np.argwhere(done)
    newest = [Episode(int(e), float(returns[t, e]), int(lengths[t, e])) for t, e in ended[-RECENT:]]
    return newest, len(ended) - len(newest)
