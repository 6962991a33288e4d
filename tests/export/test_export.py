"""Exported agents act as the agent: all kinds of actions, observations and recurrent networks, in every format."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from goal_environment import GoalLine
from line_environment import Line
from masked_environments import Turnstile, Turnstiles
from policy_environments import Cell, Free, Numbers, Pieces, Seen, Several, Shifted, Switches, Wander
from small_runs import small, train
from test_joint_actions import Cockpit

import duetto
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.networks.spaces import Box
from duetto.runs.run import Run
from duetto.tools.export import writing
from duetto.tools.export.graph import NEXT, _in_units


class ByteVector(Line):
    """Observations are vectors of bytes, not images."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)

    def see(self) -> Any:
        return np.array([100 + self.time, 200], np.uint8)


class IntegerDials(gymnasium.Env):
    """A Dict action: integers from 0 to 10 in a Box, which are rounded, and a discrete part."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space: Any = gymnasium.spaces.Dict(
        {"dial": gymnasium.spaces.Box(0, 10, (3,), np.int64), "switch": gymnasium.spaces.Discrete(2)}
    )
    steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        return np.ones(1, np.float32), 0.0, False, self.steps % 4 == 0, {}


LSTM: dict[str, Any] = {"recurrent": "lstm", "recurrent_size": 8, "burn_in": 2, "unroll": 4, "overlap": 2}
CASES: dict[str, tuple[Any, Any]] = {
    "normalized observations": (lambda: small("td3", normalize_observations="collected"), Numbers),
    "normalized bytes": (lambda: small("td3", normalize_observations="collected"), ByteVector),
    "squashed actions": (lambda: small("sac", network="simba"), Numbers),
    "batch normalization": (lambda: small("crossq"), Numbers),
    "gaussian": (lambda: small("ppo", normalize_observations=True, observation_clip=0.5), Numbers),
    "unbounded actions": (lambda: small("ppo", initial_log_std=2.0), Free),
    "discrete actions from -1": (lambda: small("ppo"), Shifted),
    "binary actions": (lambda: small("ppo"), Switches),
    "discrete observations": (lambda: small("dqn"), Cell),
    "image": (lambda: small("dqn", image_features=16), Seen),
    "dict observations": (lambda: small("ppo", image_features=16, normalize_observations=True), Pieces),
    "recurrent discrete actions": (lambda: small("dqn", **LSTM), Wander),
    "action mask": (lambda: small("dqn"), Turnstile),
    "recurrent action mask": (lambda: small("ppo", recurrent="gru", minibatches=1), Turnstiles),
    "recurrent continuous actions": (lambda: small("td3", **LSTM | {"recurrent": "gru"}), Numbers),
    "dict actions": (lambda: small("ppo"), partial(Cockpit, masked=True)),
    "integer actions": (lambda: small("ppo"), IntegerDials),
    "goals": (lambda: small("td3", hindsight="future", normalize_observations="sampled"), GoalLine),
    "recurrent multi-discrete actions": (
        lambda: small("ppo", recurrent="lstm", recurrent_size=8, minibatches=1),
        Several,
    ),
}
JAX_AND_ONNX_CASES = [
    "gaussian",
    "dict observations",
    "recurrent discrete actions",
    "action mask",
    "dict actions",
    "goals",
]


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    runs: dict[str, Run] = {}

    def get(case: str) -> Run:
        if case not in runs:
            algorithm, environment = CASES[case]
            options: dict[str, Any] = {"steps": 100, "evaluate_every": 0, "checkpoint_every": 1000}
            runs[case] = train(tmp_path_factory.mktemp("runs"), algorithm(), environment, **options)
        return runs[case]

    return get


def load_exported(path: Path, form: str) -> Any:
    """Load an exported file without Duetto; return a function from named arrays to named arrays, and the contract."""
    about = json.loads(Path(f"{path}.json").read_text())
    taken, given_back = ([port["name"] for port in about[kind]] for kind in ("inputs", "outputs"))
    if form == "onnx":
        import onnxruntime

        trainer = onnxruntime.InferenceSession(str(path))
        step = lambda *arrays: trainer.run(given_back, dict(zip(taken, arrays, strict=True)))  # noqa: E731
    elif form == "torch":
        import torch

        module = torch.export.load(str(path)).module()
        step = lambda *arrays: module(*map(torch.from_numpy, arrays))  # noqa: E731
    else:
        from jax import export

        step = export.deserialize(bytearray(path.read_bytes())).call

    def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = step(*(given[port["name"]].astype(port["dtype"]) for port in about["inputs"]))
        return dict(zip(given_back, map(np.asarray, found), strict=True))

    return run, about


def flatten(obs: Any, prefix: str = "") -> dict[str, Any]:
    items = obs.items() if isinstance(obs, dict) else enumerate(obs)
    found: dict[str, Any] = {}
    for name, part in items:
        found |= flatten(part, f"{prefix}{name}/") if isinstance(part, dict | tuple) else {f"{prefix}{name}": part}
    return found


def named_observation(obs: Any) -> dict[str, np.ndarray]:
    parts = flatten(obs, "observation/") if isinstance(obs, dict) else {"observation": obs}
    return {name: np.asarray(part)[None] for name, part in parts.items()}


@pytest.mark.parametrize(
    ("case", "form"),
    [(case, "torch") for case in CASES] + [(case, form) for form in ("jax", "onnx") for case in JAX_AND_ONNX_CASES],
)
def test_exported_agent_acts_as_the_agent(trained_run: Any, tmp_path: Path, case: str, form: str):
    if form == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    run = trained_run(case)
    path = duetto.export(run, form, tmp_path / f"agent.{form}")
    written, about = load_exported(path, form)
    assert about["checked"]["observations"] == 600
    assert [about["algorithm"], about["step"]] == [run.config.algorithm.name(), run.agent().step]

    agent, env = run.agent(), CASES[case][1]()
    memory = {port["name"]: np.zeros([1, *port["shape"][1:]], port["dtype"]) for port in about["inputs"]}
    (obs, info), reward, begins = env.reset(seed=3), 0.0, True
    for _ in range(12):
        if begins:
            agent.reset()
        mask = info.get("action_mask")
        expected = agent.act(obs, reward, action_mask=mask)
        given = memory | named_observation(obs) | ({} if mask is None else {"action_mask": np.array([mask], bool)})
        if "starts" in memory:
            given |= {"starts": np.array([begins]), "previous_reward": np.array([reward], np.float32)}
        found = written(given)
        check_action(assemble_action(about, found), expected)
        memory |= {name.removeprefix(NEXT): part for name, part in found.items() if name.startswith(NEXT)}
        obs, reward, over, cut, info = env.step(expected)
        begins = over or cut
        if begins:
            (obs, info), reward = env.reset(), 0.0


def assemble_action(about: dict[str, Any], found: dict[str, np.ndarray]) -> Any:
    """Build the environment's action from the outputs, as the contract describes."""

    def put_together(part: Any) -> Any:
        match part:
            case dict():
                return {key: put_together(inner) for key, inner in part.items()}
            case list():
                return tuple(put_together(inner) for inner in part)
        return found[part][0]

    return put_together(about.get("action", "action"))


def check_action(found: Any, expected: Any) -> None:
    assert isinstance(found, dict | tuple) == isinstance(expected, dict | tuple)
    pairs = [(found, expected)]
    if isinstance(expected, dict | tuple):
        one, other = flatten(found), flatten(expected)
        assert one.keys() == other.keys()
        pairs = [(one[name], other[name]) for name in one]
    for part, wanted in pairs:
        np.testing.assert_allclose(part, wanted, atol=1e-5)
        assert np.shape(part) == np.shape(wanted)


def test_contract_lists_the_parts_of_dict_actions(trained_run: Any, tmp_path: Path):
    about = json.loads(
        Path(f"{duetto.export(trained_run('dict actions'), 'torch', tmp_path / 'a.pt2')}.json").read_text()
    )
    outputs = {port["name"]: (port["shape"], port["dtype"]) for port in about["outputs"]}
    assert outputs == {
        "action/aim": (["N", 2], "int64"),
        "action/buttons": (["N", 2], "int8"),
        "action/move/0": (["N"], "int64"),
        "action/move/1": (["N", 2], "float64"),
    }
    assert about["action"] == {
        "aim": "action/aim", "buttons": "action/buttons", "move": ["action/move/0", "action/move/1"]
    }  # fmt: skip
    assert about["inputs"][-1]["shape"] == ["N", 12]  # the mask


def test_export_with_different_actions_is_deleted(trained_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writing, "_graph", lambda agent, graph=writing._graph: shift_normalization(graph(agent)))
    with pytest.raises(DuettoError, match=r"does not act as the agent does: .* of 600 discrete"):
        duetto.export(trained_run("normalized observations"), "torch", tmp_path / "agent.pt2")
    assert not list(tmp_path.iterdir())


def shift_normalization(graph: Any) -> Any:
    moments = {name: part._replace(mean=part.mean + 0.05) for name, part in graph.moments.items()}
    return dataclasses.replace(graph, moments=moments)


def test_export_command_prints_the_number_of_checked_observations(tmp_path: Path, command: Any):
    path = train(tmp_path, steps=60, evaluate_every=0).path
    out = command("export --format torch", path).done().out
    assert f"{path}/agent.pt2: acts as the agent of step 60 on 600 observations" in out
    assert json.loads(command("export --format torch --json", path).out)["file"] == str(path / "agent.pt2")


def test_export_does_not_overwrite_other_files(tmp_path: Path, command: Any):
    run = train(tmp_path, steps=60, evaluate_every=0)
    checkpoint = run.path / "checkpoints" / "step-000000000060"
    mine = tmp_path / "mine.json"
    mine.write_text("[1]")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for output, lost in [
        (run.path / "config.yaml", run.path / "config.yaml"),
        (run.path / "metrics.jsonl", run.path / "metrics.jsonl"),
        (checkpoint / "manifest", checkpoint / "manifest.json"),  # the contract is written beside it
        (tmp_path / "mine", mine),
    ]:
        with pytest.raises(UsageError, match=r"exists and is no export that Duetto wrote") as refusal:
            duetto.export(run, "torch", output)
        assert str(refusal.value).startswith(f"{lost} exists and is no export")
    code, _, err = command("export --format torch", run.path, "--output", run.path / "config.yaml")
    assert (code, "Give another --output." in err) == (2, True)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    for _ in range(2):
        assert duetto.export(run, "torch").exists()  # an earlier export is replaced


def test_export_replaces_links_without_following_them(tmp_path: Path):
    run, outside = train(tmp_path, steps=60, evaluate_every=0), tmp_path / "outside"
    outside.write_text("mine")
    for name in ("agent.pt2", "agent.pt2.json"):
        (run.path / name).symlink_to(outside)
    duetto.export(run, "torch")
    assert outside.read_text() == "mine"
    assert not (run.path / "agent.pt2").is_symlink()
    assert not list(run.path.glob(".export-*"))


@pytest.mark.parametrize(
    ("algorithm", "options"), [("ppo", {"precision": "bf16"}), ("td3", {"backend": "jax"})], ids=["bfloat16", "JAX"]
)
def test_exported_graph_is_float32_after_bfloat16_and_jax(tmp_path: Path, algorithm: str, options: dict[str, Any]):
    run = train(tmp_path, small(algorithm), Numbers, **options, steps=60, evaluate_every=0)
    written, _ = load_exported(duetto.export(run, "torch", tmp_path / "agent.pt2"), "torch")
    obs = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    expected = run.agent(precision="float32").act_batch(obs)
    np.testing.assert_allclose(written({"observation": obs})["action"], expected, atol=1e-5)


def test_mistakes_in_export_call_are_reported(trained_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = trained_run("normalized observations")
    with pytest.raises(UsageError, match="format is 'tflite'; it must be one of onnx, torch, jax"):
        duetto.export(run, "tflite")
    with pytest.raises(UsageError, match=r"is a folder. Give the name of a file in it"):
        duetto.export(run, "torch", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written: .* Give another --output"):
        duetto.export(run, "torch", tmp_path / "file" / "agent.pt2")
    monkeypatch.setattr(writing, "find_spec", lambda name: None if name.startswith("onnx") else object())
    with pytest.raises(
        UsageError, match=rf"The format onnx needs onnx, onnxscript, onnxruntime.*{re.escape(install('onnx'))}"
    ):
        duetto.export(run)


def test_jax_export_requests_float32_matrix_products(trained_run: Any, tmp_path: Path):
    """By default JAX rounds matrix products on GPUs, by up to 0.001 of an action's range."""
    from jax import export

    path = duetto.export(trained_run("normalized observations"), "jax", tmp_path / "agent.jax")
    graph = export.deserialize(bytearray(path.read_bytes())).mlir_module()
    products = [line for line in graph.splitlines() if "= stablehlo.dot_general" in line]
    assert products
    assert all("HIGHEST" in line for line in products), products


# ---------------------------------------------------------------------------------------------------- action bounds
@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(-0.1, 0.1, "float64"), (0.3, 0.7, "float64"), (-(2**31), 2**31 - 1, "int32")]
)
def test_action_at_a_bound_is_in_the_space(low: float, high: float, dtype: str):
    """The nearest float32 to 0.1 is greater than 0.1."""
    space = Box((2,), dtype, (low, low), (high, high))
    [found] = _in_units(space, np.array([[-1.0, 1.0]], np.float32), dtype)
    assert found.dtype == dtype
    assert low <= found[0] < found[1] <= high
    assert found == pytest.approx([low, high], rel=1e-6)
