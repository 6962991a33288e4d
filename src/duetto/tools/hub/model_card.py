"""The model card of a pushed run, in the RL Zoo's format: tags, an evaluation, and how to repeat the run."""

from __future__ import annotations

from typing import NamedTuple

from duetto.errors import escaped
from duetto.storage import reproducibility, user_code
from duetto.storage.config import Config, circumstances
from duetto.storage.safe_yaml import to_yaml
from duetto.tools.hub.file_rules import CONFIG, VIDEO, with_short_paths
from duetto.training.evaluation import Evaluation

LIBRARY = "duetto"


class CardResult(NamedTuple):
    """An evaluation of the pushed agent."""

    evaluation: Evaluation
    checkpoint: str  # last, best, or a step
    step: int
    seed: int


def card(config: Config, repository: str, result: CardResult, has_video: bool) -> str:
    """Return README.md: metadata for the Hub and for sites that list results, then the text."""
    environment, task = escaped(user_code.short(config.environment)), "reinforcement-learning"
    value = f"{result.evaluation.mean_return:.2f} +/- {result.evaluation.std_return:.2f}"
    metric = {"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}
    found = {
        "task": {"type": task, "name": task},
        "dataset": {"name": escaped(_environment(config)), "type": environment},
        "metrics": [metric],
    }
    metadata = {
        "library_name": LIBRARY,
        "tags": [environment, "deep-reinforcement-learning", task, LIBRARY],
        "model-index": [{"name": escaped(_algorithm(config)), "results": [found]}],
    }
    return f"---\n{to_yaml(metadata)}---\n\n{_text(config, repository, result, value, has_video)}"


def _text(config: Config, repository: str, result: CardResult, score: str, has_video: bool) -> str:
    run, values = config.run, with_short_paths(config.to_dict())
    folder = repository.rpartition("/")[2]
    which = "" if result.checkpoint == "last" else f" --checkpoint {result.checkpoint}"
    loaded = result.checkpoint if result.checkpoint.isdecimal() else f'"{result.checkpoint}"'
    episodes = len(result.evaluation.returns)
    film = f" `{VIDEO}` shows one episode." if has_video else ""
    installed = circumstances()
    packages = ("duetto", "python", "gymnasium", "numpy", run.backend)
    versions = ", ".join(f"{package} {installed[package]}" for package in packages if package in installed)
    elsewhere = "" if config.remakeable else " --environment ENVIRONMENT"
    again = [_plain(reproducibility.repeat_command(values, f"{folder}/{CONFIG}"))]
    again.append(f"duetto evaluate {folder}{which} --episodes {episodes} --seed {result.seed}{elsewhere}")
    needed = reproducibility.needed(values)
    sentences = [
        f"# {_plain(_algorithm(config))} on `{_plain(_environment(config)).replace('`', '')}`",
        f"Trained with Duetto for {result.step:,} steps, on {run.backend}, seed {run.seed}.{film}",
        f"Mean return **{score}** over {episodes} whole episodes, as in the run's evaluations (mean and population "
        f"standard deviation, seed {result.seed}, checkpoint {result.checkpoint}), with {versions}.",
        "## Use it",
        f"Install Duetto as its README says, with the extras `hub,{run.backend}`.",
        f"```sh\nduetto pull {repository} --output {folder}\nduetto video {folder}{which}\n```",
        f'```python\nimport duetto\n\nrun = duetto.pull("{repository}", "{folder}")\n'
        f"agent = duetto.load(run.path, {loaded})\naction = agent.act(observation)\n```",
        "## Repeat it",
        "```sh\n" + "\n".join(filter(None, again)) + "\n```",
        _plain(f"Not sent here: {' '.join(needed)}") if needed else "",
        _plain(" ".join(reproducibility.of_its_history(values))),
    ]
    return "\n\n".join(filter(None, sentences)) + "\n"


def _algorithm(config: Config) -> str:
    """Return the algorithm's name; for a custom algorithm, the name of its class."""
    return config.origin.kind.rpartition(".")[2] if config.origin else config.algorithm.name().upper()


def _environment(config: Config) -> str:
    """Return the environment's name with its options, which change the task."""
    options = ", ".join(f"{key}={value}" for key, value in with_short_paths(config.environment_options).items())
    return user_code.short(config.environment) + (f" ({options})" if options else "")


def _plain(text: str) -> str:
    """Return the text as one line, so that it starts no new block of markup."""
    return " ".join(escaped(text).split())
