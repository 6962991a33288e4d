"""Import and export Minari datasets. For an import, a child process with a memory limit reads the dataset:

this process                                    child process
duetto demos import --trust   -- job (JSON) -->   checks the file, reads it with Minari, writes demonstrations
verifies and renames them     <--- exit status, message ---
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import numpy as np

from duetto.demonstrations.dataset import check_free, decode_metadata, encode_metadata, load, writer
from duetto.demonstrations.types import Demonstration, Demonstrations, Metadata, limits
from duetto.environments import ActionMap, complete_options, from_gymnasium, learned_reward, to_gymnasium
from duetto.environments.errors import EnvironmentFault
from duetto.environments.spaces import CORRECT, Layout
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, describe_difference
from duetto.storage import safe_open
from duetto.storage.atomic_io import staging_folder

MEMORY = 2**33  # bytes of address space that the child may use (Linux)
METADATA, DATA = "metadata.json", "main_data.hdf5"  # Minari's names


def minari(part: str = "") -> Any:
    """Return the package minari, or its module `part`. Raise UsageError if minari is not installed."""
    try:
        import_module("h5py")
        return import_module(f"minari.{part}".rstrip("."))
    except ImportError as error:
        raise UsageError(f"Minari datasets need minari ({error}). Install: {install('demos')}") from error


def import_minari(
    source: str, output: str | Path, metadata: Metadata, *, overwrite: bool = False, trust: bool = False
) -> None:
    """Convert a Minari dataset to demonstrations.

    If the environment's options clip or scale rewards, imported rewards are clipped or scaled too.

    Args:
        source: The dataset's folder, or its id in Minari's local folder.
        output: The folder to create.
        metadata: Metadata of the demonstrations. The dataset must have its spaces. If `expert` is empty, it is set from
            the dataset's metadata.
        overwrite: Replace demonstrations in `output`.
        trust: Must be True, to confirm that you trust the dataset: its readers, Minari and HDF5, do not protect against
            malicious files.

    Raises:
        UsageError: The dataset does not exist, is not trusted, is damaged, or has other spaces.
    """
    if complete_options(metadata.environment, metadata.options).get("episodic_life"):
        raise UsageError(
            f"{metadata.environment} has episodic_life here, but Minari datasets do not record lost lives. Import and "
            "train with episodic_life=false."
        )
    path, folder = Path(output).absolute(), _find(source)
    check_free(path, overwrite)
    if not trust:
        raise UsageError(
            f"Minari and HDF5, which read {source}, do not protect against malicious files. If you trust its author, "
            "add --trust."
        )
    with staging_folder(path, overwrite) as hidden:
        job = {"source": str(folder.absolute()), "output": str(hidden), "metadata": encode_metadata(metadata)}
        command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
        if done.returncode:
            memory = f"the reader ended with status {done.returncode}; it may use {MEMORY // 2**30} GiB of memory"
            said = done.stderr.strip().splitlines()[-1:] if done.returncode == 1 else []
            raise UsageError(f"{folder} cannot be imported ({(said or [memory])[0].rstrip('.')}).")
        load(hidden)


def _find(source: str) -> Path:
    path = Path(source)
    for folder in (path, path / "data"):
        if (folder / METADATA).is_file():
            return folder
    folder = Path(minari("storage.local").get_dataset_path(source)) / "data"
    if not (folder / METADATA).is_file():
        raise UsageError(f"{source} is no Minari dataset. Give its folder, or its id in Minari's local folder.")
    return folder


# ---------------------------------------------------------------------------------------------------- child process
def check_source(folder: Path) -> None:
    """Raise ValueError if Minari would open files outside this dataset, or make the environment that it names."""
    metadata = json.loads(safe_open.read_file(folder / METADATA, 2**27))
    if metadata.get("data_format") != "hdf5":
        raise ValueError(f"its data_format is {metadata.get('data_format')!r}, not 'hdf5'")
    missing = [name for name in ("observation_space", "action_space") if not isinstance(metadata.get(name), str)]
    if missing:  # Minari would make the environment that `env_spec` names, to get its spaces
        raise ValueError(f"{METADATA} has no {missing[0]}. Load and save the dataset with Minari once")
    os.close(safe_open.open_file(folder / DATA, os.O_RDONLY))  # raises an error for a link or a pipe
    h5py: Any = import_module("h5py")

    def is_outside(_: str, found: Any) -> bool | None:  # a result that is not None ends the visit
        data = isinstance(found, h5py.Dataset) and (found.is_virtual or found.external)
        return bool(data) or isinstance(found, h5py.ExternalLink) or None

    with h5py.File(folder / DATA, "r") as file:
        if file.visititems_links(is_outside) or file.visititems(is_outside):
            raise ValueError(f"{DATA} has links to other files, or data in them")


def convert(folder: Path, output: Path, metadata: Metadata) -> None:
    """Read a dataset with Minari, and write it as demonstrations."""
    check_source(folder)
    storage = minari("dataset.minari_storage").MinariStorage.read(folder)
    for kind in ("observation", "action"):
        ours, theirs = (getattr(owner, f"{kind}_space") for owner in (metadata, storage))
        if differing := describe_difference(kind, from_gymnasium(theirs), ours):
            raise UsageError(
                f"its {kind} space is {differing[0]}, and the environment's is {differing[1]}. Give the --environment "
                "that it was recorded in, with the same --environment-options"
            )
    about, options = storage.metadata, complete_options(metadata.environment, metadata.options)
    learned = options.get("clip_rewards", False), options.get("log_rewards", False)
    expert = f"{about.get('algorithm_name') or 'unknown'} in {about.get('dataset_id', folder)}"
    observation, action = Layout(storage.observation_space), ActionMap(storage.action_space)
    numbers = range(storage.total_episodes)
    episodes = zip(storage.get_episodes(numbers), storage.get_episode_metadata(numbers), strict=True)
    with writer(output, replace(metadata, expert=metadata.expert or expert), overwrite=True) as opened:
        for number, (arrays, facts) in enumerate(episodes):
            try:
                episode = _episode(observation, arrays, action)
                opened.add(episode._replace(reward=learned_reward(episode.reward, *learned)), facts.get("seed"))
            except (DuettoError, EnvironmentFault, ValueError, LookupError, TypeError) as error:
                raise ValueError(f"episode {number}: {str(error).removesuffix(CORRECT)}") from error


def _episode(observation: Layout, arrays: Mapping[str, Any], actions: ActionMap) -> Demonstration:
    raw, rewards, terminations, truncations = (
        np.asarray(arrays[name]) for name in ("actions", "rewards", "terminations", "truncations")
    )
    if any(array.shape != (len(raw),) for array in (rewards, terminations, truncations)):
        raise ValueError(f"it has {len(raw)} actions, but another number of rewards, terminations or truncations")
    if len(raw) == 0 or np.any(terminations[:-1]) or np.any(truncations[:-1]):
        raise ValueError("it has no steps, or ends before its last step")
    if not actions.continuous and raw.dtype.kind == "f" and np.any(raw != np.floor(raw)):
        raise ValueError(f"its actions are not integers, but its action space is {actions.space}")
    action = actions.from_environment(raw)
    if actions.continuous:
        action = np.clip(action, *limits(actions.space), dtype=action.dtype)  # as the environment does
    obs, terminated = observation.batch(arrays["observations"], len(raw) + 1), bool(terminations[-1])
    # If an episode neither terminated nor was truncated, its recording was cut off: mark it as truncated.
    return Demonstration(obs, action, rewards.astype(np.float32), terminated, bool(truncations[-1]) or not terminated)


def main() -> None:
    """Read a job (JSON) from standard input, and run it. After a failure, the last line on stderr is the reason."""
    job = json.load(sys.stdin)
    try:
        with suppress(ImportError, ValueError, OSError):  # Windows and macOS have no such limit
            resource: Any = import_module("resource")
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        convert(Path(job["source"]), Path(job["output"]), decode_metadata(job["metadata"]))
    except Exception as error:
        sys.exit(" ".join(str(error).split()) or type(error).__name__)


# ---------------------------------------------------------------------------------------------------- export
def export_minari(demonstrations: Demonstrations, output: str | Path) -> None:
    """Write a Minari dataset.

    Discrete actions count from 0. Actions of Box spaces are flat and in [-1, 1]. Images are stored without loss.

    Raises:
        UsageError: `output` exists.
    """
    path, metadata = Path(output).absolute(), demonstrations.metadata
    storage, buffers = minari("dataset.minari_storage").MinariStorage, minari("data_collector")
    if path.exists():
        raise UsageError(f"{path} exists already. Choose another --output.")
    with staging_folder(path) as folder:
        dataset = storage.new(
            folder,
            to_gymnasium(_stored(metadata.observation_space)),
            to_gymnasium(_stored(metadata.action_space, is_action=True)),
            jpeg_encoding=False,  # Minari's default loses details of images
        )
        for episode, seed in zip(demonstrations.episodes, demonstrations.seeds, strict=True):
            ends, obs = np.zeros((2, episode.length), bool), episode.obs
            ends[:, -1] = episode.terminated, episode.truncated
            if isinstance(obs, dict):
                obs = {quote(name, safe=" "): part for name, part in obs.items()}
            buffer = buffers.EpisodeBuffer(
                seed=seed,
                observations=obs,
                actions=episode.action,
                rewards=episode.reward,
                terminations=ends[0],
                truncations=ends[1],
            )
            dataset.update_episodes([buffer])
        dataset.update_metadata(
            {
                "dataset_id": re.sub(r"[^-\w]+", "-", path.name).strip("-") + "-v0",
                "minari_version": minari().__version__,
                "algorithm_name": metadata.expert,
                "description": f"Demonstrations of {metadata.environment}, recorded by Duetto.",
            }
        )


def _stored(space: Space, *, is_action: bool = False) -> Space:
    """Return the space of the exported arrays. A Dict's keys are URL-quoted, since HDF5 reads "a/b" as b in group a."""
    match space:
        case Box() if is_action:
            low, high = limits(space)
            return Box((space.size,), "float32", tuple(low.tolist()), tuple(high.tolist()))
        case Discrete():
            return Discrete(space.n)
        case MultiDiscrete():
            return MultiDiscrete(space.nvec)
        case Dict():
            return Dict(cast("Any", tuple((quote(name, safe=" "), _stored(part)) for name, part in space.parts)))
    return space
