"""Running statistics are state that a learner keeps beside parameters: what moves them, what copies them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from learning_cases import assert_same, batch, build, small

from duetto.algorithms import SAC

KINDS = ("mean", "variance", "count")


@dataclass(frozen=True)
class Normed(SAC):
    """SAC with batch renormalisation in its critics. Its targets look at a batch too, in passing."""

    trains: bool = True

    def networks(self, observation: Any, action: Any) -> Any:
        nets = super().networks(observation, action)
        head = replace(nets["critic"].head, blocks="batch_renorm")
        return nets | {"critic": replace(nets["critic"], head=head)}

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        return self._of_critics(nets, batch)

    def _of_critics(self, nets: Any, batch: Any) -> Any:
        nets.target_critic(batch.next_obs, batch.action, train=self.trains)
        q = nets.critic(batch.obs, batch.action, train=self.trains)
        return batch.mean((q - batch.reward[None]) ** 2), {}

    def actor_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        nets.critic(batch.next_obs, batch.action, train=self.trains)  # another's: forgotten
        return super().actor_loss(nets, batch, noise)


@dataclass(frozen=True)
class InPassing(Normed):
    """Its critics' own loss does not train them; the actor's calls them with `train`."""

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        return replace(self, trains=False)._of_critics(nets, batch)


def statistics(learner, name="critic"):
    values = learner.parameters()[name]
    return {key: value for key, value in values.items() if key.endswith(KINDS)}


def by_hand(before, given):
    """Those of the first norm, over observation and action, after one batch."""
    rows = np.concatenate([given.obs, given.action], axis=1).astype(np.float64)
    return {
        "layers_norms.0.mean": 0.99 * before["layers_norms.0.mean"] + 0.01 * rows.mean(axis=0),
        "layers_norms.0.variance": 0.99 * before["layers_norms.0.variance"] + 0.01 * rows.var(axis=0),
        "layers_norms.0.count": before["layers_norms.0.count"] + 1,
    }


def test_they_move_with_the_network_that_is_minimised_alone(backend):
    """Once per update, by the critics' own batch: not by the target's, nor by what the actor's loss looked at."""
    learner = build(backend, small(Normed, tau=0.0))
    for seed in range(2):
        before, given = statistics(learner), batch(seed=seed)
        learner.update(given)
        for name, value in by_hand(before, given).items():
            np.testing.assert_allclose(statistics(learner)[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_loss_that_does_not_train_leaves_them(backend):
    learner = build(backend, small(Normed, trains=False))
    before = statistics(learner)
    learner.update(batch())
    assert_same(statistics(learner), before)


def test_what_another_loss_saw_in_passing_is_forgotten(backend):
    """Also at the network's own next update, here without `train`."""
    learner = build(backend, small(InPassing))
    before = statistics(learner)
    for _ in range(2):
        learner.update(batch())
    assert_same(statistics(learner), before)


def test_no_optimiser_knows_them(backend):
    """Nor does weight decay shrink them."""
    learner = build(backend, small(Normed, critic_weight_decay=0.5, decoupled_weight_decay=True, trains=False))
    before = statistics(learner)
    learner.update(batch())
    assert_same(statistics(learner), before)
    moments = learner.optimizer_state()["critic"]["first"]
    assert moments.keys() == learner.parameters()["critic"].keys() - before.keys()


@pytest.mark.parametrize("tau", [0.0, 0.01])
def test_targets_copy_them_whole(backend, tau):
    """Parameters move by τ, statistics are those of the network that is tracked."""
    learner = build(backend, small(Normed, tau=tau))
    learner.update(batch())
    assert_same(statistics(learner, "target_critic"), statistics(learner))
    assert statistics(learner)["layers_norms.1.count"].tolist() == [1, 1]
