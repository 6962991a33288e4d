"""TD3 without the trainer: environment, buffer and learner joined in one loop.

python docs/extending/by_hand.py                                                        # 2,000 steps of Pendulum-v1
duetto train td3 Pendulum-v1 --steps 2000 --learning-starts 100 --random-steps 100      # the same losses
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import duetto
from duetto import buffers, environments, learners
from duetto.functional.rng import generator


def losses(algorithm: duetto.TD3, environment: str, steps: int, backend: learners.Backend) -> Iterator[float]:
    """Train, and yield the critic's loss of every update."""
    seed = 0
    env = environments.make(environment)
    spaces = env.observation_space, env.action_space
    learner = learners.build(backend, algorithm, *spaces, seed=seed)
    buffer = buffers.build(algorithm.memory(), *spaces, env.num_envs, generator(seed, "memory"))

    explorer, random = algorithm.explorer(), generator(seed, "exploration", 0)
    noise_state = np.zeros((env.num_envs, env.action_space.size), np.float32)
    env.reset(seed)
    for step in range(steps):
        # Act: at random first, then with the policy and exploration noise.
        if step < algorithm.random_steps:
            action = env.sample_actions(random)
        else:
            noise, noise_state = explorer.draw(random, noise_state, step, steps, env.action_space)
            action, _ = learner.collect(env.obs, noise)

        # Store: `transition.next_obs` is the final observation where an episode ended; `env.obs` is acted on next.
        transition, episodes = env.step(action)
        buffer.add(buffers.Experience(*transition))
        for episode in episodes:
            print(f"step {step + 1:,}: return {episode.total_reward:.1f}")

        # Learn what is due: one update a step, after `learning_starts` steps. Schedules depend on the run's progress.
        for sample in buffer.due():
            metrics = learner.update(sample.batch, progress=(step + 1) / steps)
            yield metrics.value("critic_loss")


if __name__ == "__main__":
    td3 = duetto.TD3(learning_starts=100, random_steps=100)
    print(f"mean loss {np.mean([*losses(td3, 'Pendulum-v1', 2000, 'torch')]):.4g}")
