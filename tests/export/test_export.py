"""Exported agents do what the agent does: every kind of action, observation and memory, in every format."""

from __future__ import annotations

import dataclasses
import json
import re
from contextlib import closing
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
from duetto.networks.spaces import Box, Dict
from duetto.runs.run import Run
from duetto.tools.cli import main
from duetto.tools.export import writing
from duetto.tools.export.graph import NEXT, Graph, _in_units
from duetto.tools.export.writing import check


class Bytes(Line):
    """Seen as bytes, which are no image."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)

    def see(self) -> Any:
        return np.array([100 + self.time, 200], np.uint8)


class Notches(gymnasium.Env):
    """Whole numbers from 0 to 10, which are rounded, beside a choice."""

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
    "numbers scaled": (lambda: small("td3", normalize_observations="collected"), Numbers),
    "bytes scaled": (lambda: small("td3", normalize_observations="collected"), Bytes),
    "squashed": (lambda: small("sac", network="simba"), Numbers),
    "running statistics": (lambda: small("crossq"), Numbers),
    "gaussian": (lambda: small("ppo", normalize_observations=True, observation_clip=0.5), Numbers),
    "without bounds": (lambda: small("ppo", initial_log_std=2.0), Free),
    "choices from -1": (lambda: small("ppo"), Shifted),
    "several choices": (lambda: small("ppo"), Several),
    "switches": (lambda: small("ppo"), Switches),
    "one of seven observed": (lambda: small("dqn"), Cell),
    "a picture": (lambda: small("dqn", image_features=16), Seen),
    "parts": (lambda: small("ppo", image_features=16, normalize_observations=True), Pieces),
    "remembered choices": (lambda: small("dqn", **LSTM), Wander),
    "allowed choices": (lambda: small("dqn"), Turnstile),
    "allowed choices, remembered": (lambda: small("ppo", recurrent="gru", minibatches=1), Turnstiles),
    "remembered numbers": (lambda: small("td3", **LSTM | {"recurrent": "gru"}), Numbers),
    "parts of an action": (lambda: small("ppo"), partial(Cockpit, masked=True)),
    "parts, remembered": (lambda: small("ppo", recurrent="gru", recurrent_size=8, minibatches=1), Cockpit),
    "notches": (lambda: small("ppo"), Notches),
    "goals": (lambda: small("td3", hindsight="future", normalize_observations="sampled"), GoalLine),
    "remembered twice": (lambda: small("ppo", recurrent="lstm", recurrent_size=8, minibatches=1), Several),
}
FORMATS = ["torch", "jax"]
ALSO = ["numbers scaled", "gaussian", "parts", "remembered choices", "remembered numbers", "allowed choices"]
ALSO += ["parts of an action", "parts, remembered", "goals"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    runs: dict[str, Run] = {}

    def get(case: str) -> Run:
        if case not in runs:
            algorithm, environment = CASES[case]
            options: dict[str, Any] = {"steps": 100, "evaluate_every": 0, "checkpoint_every": 1000}
            runs[case] = train(tmp_path_factory.mktemp("runs"), algorithm(), environment, **options)
        return runs[case]

    return get


def called(path: Path, form: str) -> Any:
    """The file as somebody uses it who has the contract and no Duetto: named arrays in, named arrays out."""
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


def flat(obs: Any, prefix: str = "") -> dict[str, Any]:
    items = obs.items() if isinstance(obs, dict) else enumerate(obs)
    found: dict[str, Any] = {}
    for name, part in items:
        found |= flat(part, f"{prefix}{name}/") if isinstance(part, dict | tuple) else {f"{prefix}{name}": part}
    return found


def named(obs: Any) -> dict[str, np.ndarray]:
    parts = flat(obs, "observation/") if isinstance(obs, dict) else {"observation": obs}
    return {name: np.asarray(part)[None] for name, part in parts.items()}


@pytest.mark.parametrize(
    ("case", "form"), [(case, "torch") for case in CASES] + [(case, form) for form in ("jax", "onnx") for case in ALSO]
)
def test_it_acts_as_the_agent_does(made: Any, tmp_path: Path, case: str, form: str):
    if form == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    run = made(case)
    path = duetto.export(run, form, tmp_path / f"agent.{form}")
    written, about = called(path, form)
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
        given = memory | named(obs) | ({} if mask is None else {"action_mask": np.array([mask], bool)})
        if "starts" in memory:
            given |= {"starts": np.array([begins]), "previous_reward": np.array([reward], np.float32)}
        found = written(given)
        check_action(as_taken(about, found), expected)
        memory |= {name.removeprefix(NEXT): part for name, part in found.items() if name.startswith(NEXT)}
        obs, reward, over, cut, info = env.step(expected)
        begins = over or cut
        if begins:
            (obs, info), reward = env.reset(), 0.0


def as_taken(about: dict[str, Any], found: dict[str, np.ndarray]) -> Any:
    """What the environment takes, put together as the contract says where its action has parts."""

    def put_together(made: Any) -> Any:
        match made:
            case dict():
                return {key: put_together(part) for key, part in made.items()}
            case list():
                return tuple(put_together(part) for part in made)
        return found[made][0]

    return put_together(about.get("action", "action"))


def check_action(found: Any, expected: Any) -> None:
    assert isinstance(found, dict | tuple) == isinstance(expected, dict | tuple)
    pairs = [(found, expected)]
    if isinstance(expected, dict | tuple):
        one, other = flat(found), flat(expected)
        assert one.keys() == other.keys()
        pairs = [(one[name], other[name]) for name in one]
    for part, wanted in pairs:
        np.testing.assert_allclose(part, wanted, atol=1e-5)
        assert np.shape(part) == np.shape(wanted)


def test_the_contract_of_an_action_with_parts(made: Any, tmp_path: Path):
    about = json.loads(
        Path(f"{duetto.export(made('parts of an action'), 'torch', tmp_path / 'a.pt2')}.json").read_text()
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


def test_an_action_with_one_wrong_part_is_not_kept(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each part of an action is compared."""
    apart = Graph.apart

    def wrong(self: Graph, action: Any) -> Any:
        parts = apart(self, action)
        return parts if isinstance(action, np.ndarray) else parts | {"buttons": 1 - parts["buttons"]}

    monkeypatch.setattr(Graph, "apart", wrong)
    with pytest.raises(DuettoError, match="choices differ"):
        duetto.export(made("parts of an action"), "torch", tmp_path / "agent.pt2")


def test_of_any_number_of_environments(made: Any, tmp_path: Path):
    run = made("numbers scaled")
    obs = np.random.default_rng(0).normal(size=(17, 2)).astype(np.float32)
    for form in FORMATS:
        written, _ = called(duetto.export(run, form, tmp_path / f"agent.{form}"), form)
        np.testing.assert_allclose(written({"observation": obs})["action"], run.agent().act_batch(obs), atol=1e-5)


def test_what_does_not_act_alike_is_not_kept(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writing, "_graph", lambda agent, graph=writing._graph: off_by_a_little(graph(agent)))
    with pytest.raises(DuettoError, match="does not act as the agent does: of 600 observations"):
        duetto.export(made("numbers scaled"), "torch", tmp_path / "agent.pt2")
    assert not list(tmp_path.iterdir())


def test_numbers_that_are_none_are_far_apart(made: Any):
    run = made("numbers scaled")
    agent = run.agent()
    graph = writing._graph(agent)
    with closing(run.stepper(3)) as stepper, pytest.raises(DuettoError, match="numbers by up to nan of their range"):
        check(graph, lambda given: {"action": np.full((3, 2), np.nan, np.float32)}, agent.policy, stepper, 0)


def off_by_a_little(graph: Any) -> Any:
    moments = {name: part._replace(mean=part.mean + 0.05) for name, part in graph.moments.items()}
    return dataclasses.replace(graph, moments=moments)


def test_the_command_says_what_was_checked(made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = train(tmp_path, steps=60, evaluate_every=0).path
    with pytest.raises(SystemExit) as ended:
        main(["export", str(path), "--format", "torch"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"{path}/agent.pt2: acts as the agent of step 60 on 600 observations" in out
    with pytest.raises(SystemExit) as ended:
        main(["export", str(path), "--format", "torch", "--json"])
    assert json.loads(capsys.readouterr().out)["file"] == str(path / "agent.pt2")


def test_what_is_no_export_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = train(tmp_path, steps=60, evaluate_every=0)
    checkpoint = run.path / "checkpoints" / "step-000000000060"
    mine = tmp_path / "mine.json"
    mine.write_text("[1]")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for output, lost in [
        (run.path / "config.yaml", run.path / "config.yaml"),
        (run.path / "metrics.jsonl", run.path / "metrics.jsonl"),
        (checkpoint / "manifest", checkpoint / "manifest.json"),  # what stands beside is written, too
        (tmp_path / "mine", mine),
    ]:
        with pytest.raises(UsageError, match=r"is there and no export that Duetto wrote") as refusal:
            duetto.export(run, "torch", output)
        assert str(refusal.value).startswith(f"{lost} is there and no export")
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run.path), "--format", "torch", "--output", str(run.path / "config.yaml")])
    assert ended.value.code == 2
    assert "Give another --output." in capsys.readouterr().err
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    for _ in range(2):
        assert duetto.export(run, "torch").exists()  # an earlier export is


def test_it_says_which_task_it_acts_in(tmp_path: Path):
    run = train(tmp_path, steps=60, evaluate_every=0, environment_options={"max_episode_steps": 50})
    about = json.loads(Path(f"{duetto.export(run, 'torch')}.json").read_text())
    assert (about["environment"], about["environment_options"]) == ("Pendulum-v1", {"max_episode_steps": 50})


def test_links_of_a_strangers_folder_are_replaced_and_not_followed(tmp_path: Path):
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
def test_however_a_run_learned_its_graph_is_float32_of_any_framework(
    tmp_path: Path, algorithm: str, options: dict[str, Any]
):
    run = train(tmp_path, small(algorithm), Numbers, **options, steps=60, evaluate_every=0)
    written, _ = called(duetto.export(run, "torch", tmp_path / "agent.pt2"), "torch")
    obs = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    expected = run.agent(precision="float32").act_batch(obs)
    np.testing.assert_allclose(written({"observation": obs})["action"], expected, atol=1e-5)


def test_a_full_disk_is_said_and_leaves_nothing(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        UsageError, match=r"agent\.pt2 cannot be written: No space left on device\. Give another --output"
    ):
        duetto.export(made("numbers scaled"), "torch", tmp_path / "agent.pt2")
    assert not list(tmp_path.iterdir())


def test_mistakes(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = made("numbers scaled")
    with pytest.raises(UsageError, match="format is 'tflite'; it must be one of onnx, torch, jax"):
        duetto.export(run, "tflite")
    with pytest.raises(UsageError, match=r"is a folder. Give the file a name in it"):
        duetto.export(run, "torch", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written: .* Give another --output"):
        duetto.export(run, "torch", tmp_path / "file" / "agent.pt2")
    monkeypatch.setattr(writing, "find_spec", lambda name: None if name.startswith("onnx") else object())
    with pytest.raises(
        UsageError, match=rf"The format onnx needs onnx, onnxscript, onnxruntime.*{re.escape(install('torch', 'onnx'))}"
    ):
        duetto.export(run)


def test_products_are_float32_wherever_the_graph_of_jax_runs(tmp_path: Path):
    """By default JAX has them rounded on GPUs: 0.001 of an action's range, as seen on one."""
    from jax import export

    path = duetto.export(train(tmp_path, environment=Numbers, steps=60, evaluate_every=0), "jax")
    graph = export.deserialize(bytearray(path.read_bytes())).mlir_module()
    products = [line for line in graph.splitlines() if "= stablehlo.dot_general" in line]
    assert products
    assert all("HIGHEST" in line for line in products), products


# ---------------------------------------------------------------------------------------------------- the graph alone
@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(-0.1, 0.1, "float64"), (0.3, 0.7, "float64"), (-(2**31), 2**31 - 1, "int32")]
)
def test_an_action_at_a_bound_is_in_the_space(low: float, high: float, dtype: str):
    """float32 has no 0.1, and the nearest is beyond it."""
    space = Box((2,), dtype, (low, low), (high, high))
    [found] = _in_units(space, np.array([[-1.0, 1.0]], np.float32), dtype)
    assert found.dtype == dtype
    assert low <= found[0] < found[1] <= high
    assert found == pytest.approx([low, high], rel=1e-6)


def test_no_two_arrays_are_called_alike():
    """An environment may show the last action, and what else an input or output is called."""
    number = Box((2,), "float32", (-1.0, -1.0), (1.0, 1.0))
    names = ("action", "previous_action", "starts", "carry/actor/h", "own", "observation/starts")
    space = Dict(tuple((name, number) for name in names))
    graph = Graph(duetto.TD3(), space, number, {"": "float32"}, {"actor/h": (1, 3)}, {}, 5.0)
    inputs, outputs = ([port.name for port in ports] for ports in (graph.inputs, graph.outputs))
    assert len({*inputs, *outputs}) == len(inputs) + len(outputs)
    assert {"observation/action", "observation/starts", "previous_action", "starts"} <= set(inputs)
    shown = graph.as_given({name: np.full((1, 2), i, np.float32) for i, name in enumerate(names)})
    assert {name: part[0, 0] for name, part in shown.items()} == {
        f"observation/{name}": i for i, name in enumerate(names)
    }
