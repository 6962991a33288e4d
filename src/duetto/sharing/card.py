"""The model card, as the zoo's agents on the Hub have it: tags, a result that sites read, and how to repeat it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from duetto import own_files
from duetto.errors import escaped
from duetto.sharing.form import CONFIG, VIDEO
from duetto.sharing.places import bare_command
from duetto.storage.config import Config, circumstances
from duetto.storage.yaml_files import to_yaml
from duetto.training.evaluation import Evaluation

LIBRARY = "duetto"


class Result(NamedTuple):
    """A real evaluation of the agent that is sent."""

    evaluation: Evaluation
    checkpoint: str  # last, best, or a step
    step: int
    seed: int


def card(config: Config, repository: str, result: Result, unfilmed: str) -> str:
    """README.md. `unfilmed` says why there is no video; "" where there is one."""
    front = to_yaml(metadata(config, result))
    return f"---\n{front}---\n\n{_text(config, repository, result, unfilmed)}"


def metadata(config: Config, result: Result) -> dict[str, Any]:
    """What stands above the card's text, for the Hub and sites that list results."""
    environment, evaluation = escaped(own_files.short(config.environment)), result.evaluation
    task = "reinforcement-learning"
    metric = {
        "type": "mean_reward",
        "value": f"{evaluation.mean_return:.2f} +/- {evaluation.std_return:.2f}",
        "name": "mean_reward",
        "verified": False,
    }
    return {
        "library_name": LIBRARY,
        "tags": [environment, "deep-reinforcement-learning", task, LIBRARY],
        "model-index": [
            {
                "name": config.algorithm.name().upper(),
                "results": [
                    {
                        "task": {"type": task, "name": task},
                        "dataset": {"name": environment, "type": environment},
                        "metrics": [metric],
                    }
                ],
            }
        ],
    }


def results(result: Result) -> str:
    """results.json: what the card says, with every episode."""
    evaluation = result.evaluation
    values = {
        "mean_reward": evaluation.mean_return,
        "std_reward": evaluation.std_return,
        "is_deterministic": True,
        "n_eval_episodes": len(evaluation.returns),
        "eval_datetime": datetime.now(UTC).isoformat(timespec="seconds"),
        "returns": evaluation.returns.tolist(),
        "lengths": evaluation.lengths.tolist(),
        "seed": result.seed,
        "checkpoint": result.checkpoint,
        "step": result.step,
    }
    return json.dumps(values, indent=2) + "\n"


def _text(config: Config, repository: str, result: Result, unfilmed: str) -> str:
    name, run = config.algorithm.name(), config.run
    environment, evaluation = _code(own_files.short(config.environment)), result.evaluation
    folder = repository.rpartition("/")[2]
    which = "" if result.checkpoint == "last" else f" --checkpoint {result.checkpoint}"
    loaded = "" if result.checkpoint == "last" else f", {_argument(result.checkpoint)}"
    episodes = len(evaluation.returns)
    plural = "" if episodes == 1 else "s"
    film = f"`{VIDEO}` shows one episode." if not unfilmed else f"There is no video: {_plain(unfilmed)}"
    extras = f"hub,{run.backend}"
    versions = ", ".join(f"{package} {version}" for package, version in _versions(run.backend).items())
    again = [f"duetto train --config {folder}/{CONFIG}"]
    again.append(f"duetto evaluate {folder}{which} --episodes {episodes} --seed {result.seed}")
    sentences = [
        f"# {name.upper()} on {environment}",
        f"Trained with Duetto for {result.step:,} steps, on {run.backend}, seed {run.seed}. {film}",
        f"Mean return **{evaluation.mean_return:.2f} +/- {evaluation.std_return:.2f}** over {episodes} whole "
        f"episode{plural} without exploration (mean and population standard deviation, seed {result.seed}, checkpoint "
        f"{result.checkpoint}), measured before this was sent, with {versions}. Each one's return is in "
        "`results.json`.",
        "## Use it",
        f"Install Duetto as its README says, with the extras `{extras}`.",
        f"```sh\nduetto pull {repository} --output {folder}\nduetto video {folder}{which}\n```",
        f'```python\nimport duetto\n\nrun = duetto.pull("{repository}", "{folder}")\n'
        f"agent = duetto.load(run.path{loaded})\naction = agent.act(observation)\n```",
        "## Repeat it",
        "```sh\n" + "\n".join(again) + "\n```",
    ]
    if command := bare_command(config.command):
        sentences.append(f"It was trained by `{_plain(command).replace('`', '')}`.")
    if not config.remakeable:
        sentences.append("Its environment was handed over as an object: hand it over again to evaluate it.")
    return "\n\n".join(sentences) + "\n"


def _versions(backend: str) -> dict[str, str]:
    found, wanted = circumstances(), ("duetto", "python", "gymnasium", "numpy", backend)
    return {package: found[package] for package in wanted if package in found}


def _argument(checkpoint: str) -> str:
    return checkpoint if checkpoint.isdecimal() else f'"{checkpoint}"'


def _code(text: str) -> str:
    return f"`{_plain(text).replace('`', '')}`"


def _plain(text: str) -> str:
    """One line, in which no markup begins a new block."""
    return " ".join(escaped(text).split())
