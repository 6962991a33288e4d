"""Running statistics of batch norms: which losses update them, and how target networks copy them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from learning_cases import assert_same, batch, build, small

from duetto.algorithms import SAC

STATISTICS = ("mean", "variance", "count")


@dataclass(frozen=True)
class BatchRenormSAC(SAC):
    """SAC with batch renormalization in its critics. Its target critics are also called with `train`."""

    trains: bool = True

    def networks(self, observation: Any, action: Any) -> Any:
        nets = super().networks(observation, action)
        head = replace(nets["critic"].head, blocks="batch_renorm")
        return nets | {"critic": replace(nets["critic"], head=head)}

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        return self._critic_error(nets, batch)

    def _critic_error(self, nets: Any, batch: Any) -> Any:
        nets.target_critic(batch.next_obs, batch.action, train=self.trains)
        q = nets.critic(batch.obs, batch.action, train=self.trains)
        return batch.mean((q - batch.reward[None]) ** 2), {}

    def actor_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        nets.critic(batch.next_obs, batch.action, train=self.trains)  # these new statistics are discarded
        return super().actor_loss(nets, batch, noise)


@dataclass(frozen=True)
class TrainOnlyInActorLoss(BatchRenormSAC):
    """Calls the critics with `train` in the actor's loss, but not in the critics' loss."""

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        return replace(self, trains=False)._critic_error(nets, batch)


def statistics(learner, name="critic"):
    values = learner.parameters()[name]
    return {key: value for key, value in values.items() if key.endswith(STATISTICS)}


def expected_statistics(before, given):
    """Return the first norm's statistics (of observation and action) after one batch."""
    rows = np.concatenate([given.obs, given.action], axis=1).astype(np.float64)
    return {
        "layers_norms.0.mean": 0.99 * before["layers_norms.0.mean"] + 0.01 * rows.mean(axis=0),
        "layers_norms.0.variance": 0.99 * before["layers_norms.0.variance"] + 0.01 * rows.var(axis=0),
        "layers_norms.0.count": before["layers_norms.0.count"] + 1,
    }


def test_own_loss_updates_statistics_once_and_targets_copy_them(backend):
    """They follow the critics' own batch, not those of the target critics or the actor's loss.

    Target parameters move by τ; target statistics are copies.
    """
    learner = build(backend, small(BatchRenormSAC, tau=0.0))
    for seed in range(2):
        before, given = statistics(learner), batch(seed=seed)
        learner.update(given)
        for name, value in expected_statistics(before, given).items():
            np.testing.assert_allclose(statistics(learner)[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
        assert_same(statistics(learner, "target_critic"), statistics(learner))


def test_statistics_ignore_the_losses_of_other_networks(backend):
    """This includes the network's own next update, here without `train`."""
    learner = build(backend, small(TrainOnlyInActorLoss))
    before = statistics(learner)
    for _ in range(2):
        learner.update(batch())
    assert_same(statistics(learner), before)


def test_optimizers_ignore_statistics(backend):
    """Weight decay does not shrink them."""
    learner = build(backend, small(BatchRenormSAC, critic_weight_decay=0.5, decoupled_weight_decay=True, trains=False))
    before = statistics(learner)
    learner.update(batch())
    assert_same(statistics(learner), before)
    moments = learner.optimizer_state()["critic"]["first"]
    assert moments.keys() == learner.parameters()["critic"].keys() - before.keys()
