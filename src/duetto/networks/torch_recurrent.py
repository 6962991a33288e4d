"""Recurrent layers in PyTorch, by its own loop over time, which knows no episodes: it runs from one start to the next.

a a a a b b b c c        two rows, and three calls of the loop:
d d d d d d d e e        steps 0-3, 4-6 and 7-8; the state of a row is zeroed where its episode starts
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from duetto.networks.layers import RecurrentSpec
from duetto.networks.sequence_input import SequenceInput

State = list[Tensor]  # (layers, B, size) each

# For the whole process: a GPU gathers the weights at each call.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk of memory")


def recurrent(
    spec: RecurrentSpec, weights: Mapping[str, Tensor], x: Tensor, carry: dict[str, Tensor], window: SequenceInput
) -> tuple[Tensor, dict[str, Tensor]]:
    """`recurrent` in PyTorch."""
    arrays, outputs = [weights[name] for name in spec.shapes(0)], []
    state = [part.to(x.dtype).transpose(0, 1) for part in carry.values()]
    starts = window.starts.any(0).nonzero()[:, 0].tolist() if x.shape[1] > 1 else []
    for start, end in pairwise(sorted({0, min(spec.burn_in, x.shape[1]), x.shape[1], *starts})):
        state = [_state_before(spec, part, window, start) for part in state]
        output, state = _unroll(spec, arrays, x[:, start:end], state)
        outputs.append(output)
    after = dict(zip(carry, (part.transpose(0, 1).float() for part in state), strict=True))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1), after


def _state_before(spec: RecurrentSpec, state: Tensor, window: SequenceInput, time: int) -> Tensor:
    """Return the state (layers, B, size) before the observation at `time`: zero at an episode's start.

    No gradient flows through the end of the burn-in.
    """
    if time == spec.burn_in:
        kept = window.is_first if spec.learn_from_start else torch.zeros_like(window.is_first)
        state = torch.where(kept[None, :, None], state, state.detach())
    return torch.where(window.starts[:, time][None, :, None], torch.zeros_like(state), state)


def _unroll(spec: RecurrentSpec, weights: list[Tensor], x: Tensor, state: State) -> tuple[Tensor, State]:
    # Biases, layers, dropout, train (else cuDNN gives no gradients), bidirectional, batch first.
    options = (True, spec.layers, 0.0, True, False, True)
    if spec.kind == "gru":
        output, hidden = torch.gru(x, state[0].contiguous(), weights, *options)
        return output, [hidden]
    output, hidden, cells = torch.lstm(x, [part.contiguous() for part in state], weights, *options)
    return output, [hidden, cells]
