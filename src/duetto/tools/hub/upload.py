"""Push a run to the Hub with an evaluation of its agent.

Duetto sends the config, a checkpoint and the logs. It leaves out callbacks' states, files of trackers and TensorBoard,
signatures, the command line and paths on this machine. The replay buffer and the environments' states are sent only
with --memory. Since private data is removed, the checkpoints get new checksums.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from duetto.errors import CheckpointError, DuettoError, UsageError, near
from duetto.runs.argument_checks import load_checkpoint
from duetto.runs.run import Run
from duetto.storage import atomic_io, safe_open
from duetto.storage.checkpoint import CheckpointStore, Loaded
from duetto.storage.logs import LARGEST
from duetto.storage.manifest import Manifest, read_folder, write_folder
from duetto.storage.reproducibility import dict_diff, flat, json_text
from duetto.storage.run_folder import free_folder
from duetto.storage.safe_yaml import to_yaml
from duetto.storage.tree_codec import decode_tree, encode_tree
from duetto.tools.hub import file_rules, model_card
from duetto.tools.hub.client import Hub, Listing
from duetto.tools.hub.file_rules import with_short_paths
from duetto.training.evaluation import Evaluation
from duetto.training.notices import Notices

_IGNORED = (".gitattributes", ".gitignore", file_rules.CARD, "LICENSE", "LICENSE.md")  # allowed in a new repository


class Pushed(NamedTuple):
    """The files that were sent, or that a dry run wrote, and the agent's evaluation."""

    where: str  # the repository's address; for a dry run, the folder
    files: dict[str, int]  # size in bytes by name
    evaluation: Evaluation
    notices: list[str]


def push(
    run: Run | str | Path,
    repository: str,
    *,
    checkpoint: str | int = "last",
    episodes: int = 10,
    seed: int | None = None,
    video: bool = True,
    memory: bool = False,
    private: bool = False,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Pushed:
    """Evaluate the agent, record a video, and send the run to the Hub with a model card.

    If the repository contains a run already, one commit replaces it; the history keeps the earlier files. Duetto uses
    the token that huggingface_hub finds. Nothing is sent before the evaluation is done.

    Args:
        run: A run, or its folder.
        repository: "user/name". It is created if it does not exist.
        checkpoint: The agent to evaluate: "last", "best", or a step. With "best", the last checkpoint is sent too.
        episodes: Number of episodes of the evaluation on the card.
        seed: Seed of this evaluation; by default the seed of the run.
        video: Record an episode; if that is impossible, a notice says why.
        memory: Send the replay buffer, without which no off-policy run can be resumed.
        private: Make a new repository private.
        dry_run: Write all files into a new folder `hub/NAME`, and send nothing. No server is contacted.
        tell: Called with short texts about the progress.

    Raises:
        UsageError: A mistake in the call, no token, or a repository that contains something other than a run.
        DuettoError: The server refuses or fails. An existing repository is unchanged; a new repository may be empty.
    """
    file_rules.check_repository(repository)
    run = run if isinstance(run, Run) else Run(run)
    hub = None if dry_run else Hub()
    if hub is not None:
        tell("asking the Hub")
        hub.check_token()
        _check_repository_free(repository, hub.list_files(repository), private)
    try:
        with TemporaryDirectory(prefix="duetto-push-") as temporary:
            bundle = Path(temporary)
            evaluation, notices = _write_bundle(
                run, bundle, repository, checkpoint, episodes, seed, video, memory, tell
            )
            paths = (path for path in sorted(bundle.rglob("*")) if path.is_file())
            sizes = {path.relative_to(bundle).as_posix(): path.stat().st_size for path in paths}
            if hub is None:
                folder = free_folder(Path("hub").absolute(), repository.rpartition("/")[2])
                where = str(near(shutil.copytree(bundle, folder, dirs_exist_ok=True)))
            else:
                tell(f"sending {sum(sizes.values()) / 1e6:.1f} MB to {repository}")
                message = f"{run.config.algorithm.name()}: mean return {evaluation}"
                where = hub.upload(repository, bundle, file_rules.OLD, message, private)
    except OSError as error:
        path = error.filename or "A temporary file"
        raise DuettoError(f"{path} cannot be written: {error.strerror or error}.") from error
    return Pushed(where, sizes, evaluation, [*notices, *dict.fromkeys(run.notices)])


def _write_bundle(
    run: Run,
    bundle: Path,
    repository: str,
    checkpoint: str | int,
    episodes: int,
    seed: int | None,
    video: bool,
    memory: bool,
    tell: Callable[[str], None],
) -> tuple[Evaluation, list[str]]:
    """Write all files into an empty folder; return the evaluation on the card, and notices."""
    step, found = pack(run, bundle, checkpoint, memory)
    notices = Notices(found)
    agent = step if checkpoint == "last" else checkpoint  # a run that still trains may write newer checkpoints
    evaluation = run.evaluate(episodes, agent, seed, tell)
    if video:
        try:
            run.video(bundle / file_rules.VIDEO, agent, seed, tell=tell)
        except DuettoError as error:
            notices.append(f"There is no video: {error}")
    used_seed = run.config.run.seed if seed is None else seed
    result = model_card.CardResult(evaluation, str(checkpoint), step, used_seed)
    card = model_card.card(run.config, repository, result, (bundle / file_rules.VIDEO).exists())
    atomic_io.write_file(bundle / file_rules.CARD, card.encode())
    return evaluation, [*notices]


def _check_repository_free(repository: str, listing: Listing | None, private: bool) -> None:
    """Raise UsageError if the repository is public despite `private`, or contains something other than a run."""
    if listing is None:
        return
    if private and not listing.private:
        raise UsageError(
            f"{repository} exists and is public. Make it private on its page first, or choose another name."
        )
    checkpoint = any(name.startswith("checkpoints/") and file_rules.belongs(name) for name in listing.files)
    if not (file_rules.CONFIG in listing.files and checkpoint) and (
        others := sorted(listing.files.keys() - set(_IGNORED))
    ):
        raise UsageError(
            f"{repository} contains files of something other than a run ({', '.join(others[:3])}). Choose another name."
        )


# ---------------------------------------------------------------------------------------------------- what is sent
def pack(run: Run, folder: Path, checkpoint: str | int, memory: bool) -> tuple[int, list[str]]:
    """Write the run into an empty folder; return the agent's step, and notices.

    The notices name the differences from the run's folder. The new folder gets a whole checkpoint and, if the run has
    them, the best parameters.

    Raises:
        CheckpointError: The checkpoint is damaged or missing.
    """
    store = CheckpointStore(run.path / "checkpoints")
    values = run.config.to_dict() | {"command": ""}
    values.pop("signature", None)
    bare = with_short_paths(values)
    atomic_io.write_file(folder / file_rules.CONFIG, to_yaml(bare).encode())
    changed = dict_diff(flat(values), flat(bare))
    notices = [f"Of paths on this machine, only the last name is sent: {', '.join(changed)}."] * bool(changed)
    (folder / "checkpoints").mkdir()
    loaded = load_checkpoint(run.path, checkpoint) if checkpoint != "best" else store.load_latest(memory=False)
    notices += loaded.problems
    step = loaded.step
    try:
        best = store.load_best()
        _pack_state(best, folder / "checkpoints" / "best" / f"{best.step:012}")
        step = best.step if checkpoint == "best" else step
    except CheckpointError:
        if checkpoint == "best":
            raise
    manifest = _pack_state(loaded, folder / "checkpoints" / f"step-{loaded.step:012}", environments=memory)
    for name in (file_rules.EVALUATIONS, file_rules.METRICS):
        if (run.path / name).exists():
            atomic_io.write_file(folder / name, safe_open.read_file(run.path / name, LARGEST))
    if manifest.segments and not memory:
        size = sum(record.file.size for record in manifest.segments)
        notices.append(
            f"The replay buffer ({size:,} bytes) is not sent, so the pulled run cannot be resumed. To send it, give "
            "--memory."
        )
    for record in manifest.segments if memory else ():
        target = folder / "checkpoints" / "memory"
        target.mkdir(exist_ok=True)
        atomic_io.write_file(target / record.file.name, record.file.read(run.path / "checkpoints" / "memory"))
    return step, notices


def _pack_state(loaded: Loaded, target: Path, environments: bool = False) -> Manifest:
    """Write a checkpoint or best parameters without private data; return its manifest."""
    manifest, files = read_folder(loaded.path)
    state = {name: value for name, value in decode_tree("state", files).items() if name != "callbacks"}
    if "stepper" in state and not environments:  # without it, a resumed run starts new episodes
        state["stepper"] = state["stepper"] | {"environments": None}
    recorded = state.get("config", {})  # each option's value as JSON
    bare = {key: json_text(with_short_paths(json.loads(value))) for key, value in recorded.items()}
    state = with_short_paths(state) | {"config": bare}
    files |= encode_tree("state", state)
    manifest = Manifest.of(manifest.step, files, manifest.segments)
    target.parent.mkdir(exist_ok=True)
    atomic_io.move(write_folder(target, files, manifest), target)
    return manifest
