"""The model card, in the format of the RL Zoo's agents: tags, a result that sites read, and how to repeat it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from duetto.errors import escaped
from duetto.storage import repeat_command, user_code
from duetto.storage.config import Config, circumstances
from duetto.storage.safe_yaml import to_yaml
from duetto.tools.hub.file_rules import CONFIG, VIDEO
from duetto.tools.hub.private_paths import bare_command, without_places
from duetto.training.evaluation import Evaluation

LIBRARY = "duetto"


class CardResult(NamedTuple):
    """An evaluation of the agent that is sent."""

    evaluation: Evaluation
    checkpoint: str  # last, best, or a step
    step: int
    seed: int


def card(config: Config, repository: str, result: CardResult, without_video: str) -> str:
    """Return the text of README.md. `without_video` is the reason if there is no video, else ""."""
    front = to_yaml(metadata(config, result))
    return f"---\n{front}---\n\n{_text(config, repository, result, without_video)}"


def metadata(config: Config, result: CardResult) -> dict[str, Any]:
    """Return the card's metadata, above its text, for the Hub and sites that list results."""
    environment, evaluation = escaped(user_code.short(config.environment)), result.evaluation
    task_name = escaped(_environment(config))
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
                "name": escaped(_algorithm(config)),
                "results": [
                    {
                        "task": {"type": task, "name": task},
                        "dataset": {"name": task_name, "type": environment},
                        "metrics": [metric],
                    }
                ],
            }
        ],
    }


def _is_deterministic(config: Config) -> bool:
    """Return whether evaluations use the policy's best action at every step."""
    algorithm = config.algorithm
    return not (getattr(algorithm, "stochastic_evaluation", False) or getattr(algorithm, "evaluation_epsilon", 0.0))


def results(config: Config, result: CardResult) -> str:
    """Return the text of results.json: the card's numbers, with every episode."""
    evaluation = result.evaluation
    values = {
        "mean_reward": evaluation.mean_return,
        "std_reward": evaluation.std_return,
        "is_deterministic": _is_deterministic(config),
        "n_eval_episodes": len(evaluation.returns),
        "eval_datetime": datetime.now(UTC).isoformat(timespec="seconds"),
        "returns": evaluation.returns.tolist(),
        "lengths": evaluation.lengths.tolist(),
        "seed": result.seed,
        "checkpoint": result.checkpoint,
        "step": result.step,
    }
    return json.dumps(values, indent=2) + "\n"


def _text(config: Config, repository: str, result: CardResult, without_video: str) -> str:
    run, evaluation, values = config.run, result.evaluation, without_places(config.to_dict())
    folder = repository.rpartition("/")[2]
    which = "" if result.checkpoint == "last" else f" --checkpoint {result.checkpoint}"
    loaded = "" if result.checkpoint == "last" else f", {_argument(result.checkpoint)}"
    episodes = len(evaluation.returns)
    plural = "" if episodes == 1 else "s"
    how = "without exploration" if _is_deterministic(config) else "with the exploration of its evaluations"
    film = f"`{VIDEO}` shows one episode." if not without_video else f"There is no video: {_plain(without_video)}"
    extras = f"hub,{run.backend}"
    versions = ", ".join(f"{package} {version}" for package, version in _versions(run.backend).items())
    elsewhere = "" if config.remakeable else " --environment ENVIRONMENT"
    again = [_plain(repeat_command.command(values, f"{folder}/{CONFIG}"))]
    again.append(f"duetto evaluate {folder}{which} --episodes {episodes} --seed {result.seed}{elsewhere}")
    sentences = [
        f"# {_plain(_algorithm(config))} on {_code(_environment(config))}",
        f"Trained with Duetto for {result.step:,} steps, on {run.backend}, seed {run.seed}. {film}",
        f"Mean return **{evaluation.mean_return:.2f} +/- {evaluation.std_return:.2f}** over {episodes} whole "
        f"episode{plural} {how} (mean and population standard deviation, seed {result.seed}, checkpoint "
        f"{result.checkpoint}), with {versions}. `results.json` has the return of each episode.",
        "## Use it",
        f"Install Duetto as its README says, with the extras `{extras}`.",
        f"```sh\nduetto pull {repository} --output {folder}\nduetto video {folder}{which}\n```",
        f'```python\nimport duetto\n\nrun = duetto.pull("{repository}", "{folder}")\n'
        f"agent = duetto.load(run.path{loaded})\naction = agent.act(observation)\n```",
        "## Repeat it",
        "```sh\n" + "\n".join(filter(None, again)) + "\n```",
    ]
    if lacking := repeat_command.needed(values):
        sentences.append(_plain(f"Not sent here: {' '.join(lacking)}"))
    if history := repeat_command.of_its_history(values):
        sentences.append(_plain(" ".join(history)))
    if command := bare_command(config.command):
        sentences.append(f"It was trained by `{_plain(command).replace('`', '')}`.")
    return "\n\n".join(sentences) + "\n"


def _algorithm(config: Config) -> str:
    """Return the algorithm's name; the class of a custom one."""
    return config.origin.kind.rpartition(".")[2] if config.origin else config.algorithm.name().upper()


def _environment(config: Config) -> str:
    """Return the environment's name with its options, which change the task."""
    options = ", ".join(f"{key}={value}" for key, value in without_places(config.environment_options).items())
    return user_code.short(config.environment) + (f" ({options})" if options else "")


def _versions(backend: str) -> dict[str, str]:
    versions, wanted = circumstances(), ("duetto", "python", "gymnasium", "numpy", backend)
    return {package: versions[package] for package in wanted if package in versions}


def _argument(checkpoint: str) -> str:
    return checkpoint if checkpoint.isdecimal() else f'"{checkpoint}"'


def _code(text: str) -> str:
    return f"`{_plain(text).replace('`', '')}`"


def _plain(text: str) -> str:
    """Return the text as one line, so that it starts no new block of markup."""
    return " ".join(escaped(text).split())
