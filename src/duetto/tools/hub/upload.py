"""Push a run to the Hub with an evaluation of its agent.

It sends a run's folder: config, checkpoint and logs. It leaves out the replay buffer and the environments' states,
unless the buffer is wanted; callbacks' states; trackers' and TensorBoard's files; signatures, the command line,
and paths on this machine. So the checkpoints get new checksums.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from duetto.errors import CheckpointError, DuettoError, UsageError, near
from duetto.runs.argument_checks import chosen
from duetto.runs.run import Run
from duetto.storage import atomic_io, safe_open
from duetto.storage.checkpoint import CheckpointStore, Loaded, folder_name
from duetto.storage.dict_diff import dict_diff, flat
from duetto.storage.logs import LARGEST
from duetto.storage.manifest import Manifest, read_folder, write_folder
from duetto.storage.run_folder import free_folder
from duetto.storage.safe_yaml import to_yaml
from duetto.storage.tree_codec import decode_tree, encode_tree
from duetto.tools.hub import file_rules, model_card
from duetto.tools.hub.client import Hub, Listing
from duetto.tools.hub.file_rules import without_places
from duetto.training.evaluation import Evaluation
from duetto.training.notices import Notices

_IGNORED = (".gitattributes", ".gitignore", file_rules.CARD, "LICENSE", "LICENSE.md")  # of a new repository


class Pushed(NamedTuple):
    """The files that were sent, or would be, and their evaluation."""

    where: str  # the repository's address; of a dry run the folder
    files: dict[str, int]  # bytes by name
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

    A repository that holds a run already is updated in one commit; its history keeps the earlier files. The token is
    the one that huggingface_hub finds. Nothing is sent before the evaluation is done.

    Args:
        run: A run, or its folder.
        repository: "user/name". A new one is created.
        checkpoint: The agent: "last", "best", or a step. A whole checkpoint is sent in any case.
        episodes: Number of episodes of the evaluation on the card.
        seed: Seed of that evaluation; by default the run's own.
        video: Record an episode; if that is impossible, a notice says why.
        memory: Send the replay memory: without it, the run cannot be resumed from there.
        private: Make a new repository private.
        dry_run: Write all files into a new folder `hub/NAME`, and send nothing. No server is contacted.
        tell: Gets a few words now and then on the progress.

    Raises:
        UsageError: A mistake in the call, no token, or a repository that holds something else.
        DuettoError: The server refuses or fails. Then the repository is unchanged; a new one may be empty.
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
        raise DuettoError(f"{error.filename} cannot be written: {error.strerror}.") from error
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
    agent = step if checkpoint == "last" else checkpoint  # a running run may make newer ones
    evaluation = run.evaluate(episodes, agent, seed, tell)
    if video:
        try:
            run.video(bundle / file_rules.VIDEO, agent, seed, tell=tell)
        except DuettoError as error:
            notices.append(f"There is no video: {error}")
    used_seed = run.config.run.seed if seed is None else seed
    result = model_card.CardResult(evaluation, str(checkpoint), step, used_seed)
    text = model_card.card(run.config, repository, result, (bundle / file_rules.VIDEO).exists())
    atomic_io.write_file(bundle / file_rules.CARD, text.encode())
    return evaluation, [*notices]


def _check_repository_free(repository: str, listing: Listing | None, private: bool) -> None:
    """Raise UsageError if the repository is public though `private`, or holds something other than a run."""
    if listing is None:
        return
    if private and not listing.private:
        raise UsageError(
            f"{repository} exists, and everybody can read it. Make it private on its page first, or choose another "
            "name."
        )
    names = {file.name for file in listing.files}
    if file_rules.CONFIG not in names and (others := sorted(names - set(_IGNORED))):
        raise UsageError(
            f"{repository} holds something else than a run ({', '.join(others[:3])}), which would be mixed with this "
            "one. Choose another name."
        )


# ---------------------------------------------------------------------------------------------------- what is sent
def pack(run: Run, folder: Path, checkpoint: str | int, memory: bool) -> tuple[int, list[str]]:
    """Write the run into an empty folder; return the agent's step, and notices on differences from the run's folder.

    A whole checkpoint is included, and the best parameters if there are any, so that the run can be resumed.

    Raises:
        CheckpointError: The checkpoint is damaged or missing.
    """
    store = CheckpointStore(run.path / "checkpoints")
    values = run.config.to_dict() | {"command": ""}
    values.pop("signature", None)
    bare = without_places(values)
    atomic_io.write_file(folder / file_rules.CONFIG, to_yaml(bare).encode())
    changed = dict_diff(flat(values), flat(bare))
    notices = [f"Only the last name of paths on this machine is sent: {', '.join(changed)}."] * bool(changed)
    (folder / "checkpoints").mkdir()
    loaded = chosen(run.path, checkpoint) if checkpoint != "best" else store.load_latest(memory=False)
    notices += loaded.problems
    step = loaded.step
    try:
        best = store.load_best()
        _pack_state(best, folder / "checkpoints" / "best" / f"{best.step:012}")
        step = best.step if checkpoint == "best" else step
    except CheckpointError:
        if checkpoint == "best":
            raise
    manifest = _pack_state(loaded, folder / "checkpoints" / folder_name(loaded.step), environments=memory)
    for name in (file_rules.EVALUATIONS, file_rules.METRICS):
        if (run.path / name).exists():
            atomic_io.write_file(folder / name, safe_open.read_file(run.path / name, LARGEST))
    if manifest.segments and not memory:
        size = sum(record.file.size for record in manifest.segments)
        notices.append(
            f"The replay memory ({size:,} bytes) is not sent, so the run cannot be resumed from there. --memory sends "
            "it."
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
    if "stepper" in state and not environments:  # a resumed run starts new episodes
        state["stepper"] = state["stepper"] | {"environments": None}
    deciding = state.get("config", {})
    state = without_places(state) | {"config": {key: _bare_json(text) for key, text in deciding.items()}}
    files |= encode_tree("state", state)
    manifest = Manifest.of(manifest.step, files, manifest.segments)
    target.parent.mkdir(exist_ok=True)
    atomic_io.move(write_folder(target, files, manifest), target)
    return manifest


def _bare_json(text: str) -> str:
    """Return a JSON text of `storage.reproducibility` without private paths. DuettoError if it is no JSON."""
    try:
        return json.dumps(without_places(json.loads(text)), ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise DuettoError(f"The checkpoint's record of its config is damaged: {error}.") from error
