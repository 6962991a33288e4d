"""Recurrent layers in PyTorch: the library's own loop over time, which knows no episodes.

An episode that begins within a row gets a row of its own, which the loop runs over beside the others:

    row     a a a a b b b c c        three episodes of one row
    rows    a a a a . . . . .        what comes behind an episode is computed, and not looked at
            0 0 0 0 b b b . .        before an episode the state stays zero: a gate is held
            0 0 0 0 0 0 0 c c

The other way, a call of the loop from each beginning to the next, takes 53 ms of an Intel Xeon's core instead of 44 for
an update of R2D2 with episodes of 100 steps (32 rows of 41, an LSTM of 128), 76 instead of 58 with episodes of 40, and
102 instead of 114 with episodes of 15; without any it is 33.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from duetto.networks.encoding import encode_action
from duetto.networks.specs import Recurrent
from duetto.networks.windows import Window

State = list[Tensor]  # (layers, B, size) each
HELD = 1e4  # a logistic function of it is 1, and of its negative 0

# For the whole process: a GPU moves them together at each call, and with the column of `_holding` they are new anyway.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk of memory")


def recurrent(
    spec: Recurrent, weights: Mapping[str, Tensor], x: Tensor, window: Window
) -> tuple[Tensor, dict[str, Tensor]]:
    """See `network.Layers`: features (B, S, F) to (B, S, size), and the carry after the last of them."""
    previous = encode_action(spec.action, window.previous_action)
    x = torch.cat([x, previous.to(x.dtype), window.previous_reward[..., None].to(x.dtype)], -1)
    state, outputs = _initial(spec, x, window), []
    for begin, end in pairwise(sorted({0, min(spec.burn_in, x.shape[1]), x.shape[1]})):
        state = [_state_before(spec, part, window, begin) for part in state]
        arrays = [weights[name] for name in spec.shapes(0)]
        output, state = _run(spec, arrays, x[:, begin:end], state, window.starts[:, begin + 1 : end])
        outputs.append(output)
    carry = dict(zip(spec.state(), (part.transpose(0, 1).float() for part in state), strict=True))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1), carry


def _initial(spec: Recurrent, x: Tensor, window: Window) -> State:
    found = []
    for name, shape in spec.state().items():
        given = window.carry.get(name)
        given = x.new_zeros(len(x), *shape) if given is None else given.to(x.dtype)
        found.append(given.transpose(0, 1))
    return found


def _state_before(spec: Recurrent, state: Tensor, window: Window, time: int) -> Tensor:
    """The state (layers, B, size) before the observation at `time`: zero at an episode's start, no gradient through
    the end of the burn-in.
    """
    if time == spec.burn_in:
        kept = window.fresh if spec.learn_from_start else torch.zeros_like(window.fresh)
        state = torch.where(kept[None, :, None], state, state.detach())
    return torch.where(window.starts[:, time][None, :, None], torch.zeros_like(state), state)


def _run(spec: Recurrent, weights: list[Tensor], x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
    """Outputs (B, S, size) of x (B, S, F), and the last state; `starts` (B, S - 1) are those after the first step."""
    if starts.shape[1] == 0 or not bool(starts.any()):
        return _unrolled(spec, weights, x, state)
    parts = _parted(starts)
    zeros = [part.new_zeros(part.shape[0], len(parts.row) - len(x), part.shape[2]) for part in state]
    before = [torch.cat(pair, 1) for pair in zip(state, zeros, strict=True)]
    x, last = x[parts.row], []
    for layer in range(spec.layers):
        own = weights[4 * layer : 4 * layer + 4]
        held = torch.cat([x, parts.early[..., None].to(x.dtype)], -1), [_holding(spec, own[0]), *own[1:]]
        x, after = _unrolled(spec, held[1], held[0], [part[layer : layer + 1] for part in before])
        last.append([part[:, parts.last] for part in after])
    return x[parts.of, torch.arange(x.shape[1], device=x.device)], [torch.cat(each) for each in zip(*last, strict=True)]


class _Parts(NamedTuple):
    """P rows that hold one episode each: first the one at the beginning of each of the B rows, then all later ones."""

    row: Tensor  # (P,) the row that it is part of
    early: Tensor  # (P, S) bool: its episode has not begun
    of: Tensor  # (B, S) the row in which a step is looked at
    last: Tensor  # (B,) the row in which the last step is


def _parted(starts: Tensor) -> _Parts:
    rows, times = starts.nonzero(as_tuple=True)  # in the rows' order, and in time's within each
    count, steps = len(starts), torch.arange(starts.shape[1] + 1, device=starts.device)
    begins = torch.cat([times.new_zeros(count), times + 1])
    number = torch.nn.functional.pad(starts.cumsum(1), (1, 0))  # of the episode within its row
    earlier = starts.sum(1).cumsum(0) - starts.sum(1)  # episodes that begin within the rows before
    of = torch.where(
        number == 0, torch.arange(count, device=starts.device)[:, None], count + earlier[:, None] + number - 1
    )
    row = torch.cat([torch.arange(count, device=starts.device), rows])
    return _Parts(row, steps[None] < begins[:, None], of, of[:, -1])


def _holding(spec: Recurrent, weight: Tensor) -> Tensor:
    """The input's weights with one column more: nothing enters the state while the input in that column is 1."""
    column = torch.zeros_like(weight[:, :1])
    if spec.kind == "lstm":
        column[: spec.size] = -HELD  # the input gate
    else:
        column[spec.size : 2 * spec.size] = HELD  # the update gate, which keeps what is there
    return torch.cat([weight, column], 1)


def _unrolled(spec: Recurrent, weights: list[Tensor], x: Tensor, state: State) -> tuple[Tensor, State]:
    # Biases, layers, dropout, train (else cuDNN gives no gradients; there is no dropout), both ways, (B, S).
    options = (True, len(weights) // 4, 0.0, True, False, True)
    if spec.kind == "gru":
        output, hidden = torch.gru(x, state[0].contiguous(), weights, *options)
        return output, [hidden]
    output, hidden, cells = torch.lstm(x, [part.contiguous() for part in state], weights, *options)
    return output, [hidden, cells]
