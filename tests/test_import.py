"""`import duetto` is fast and imports no framework."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

import duetto

HEAVY = {"torch", "jax", "jaxlib", "equinox", "optax", "gymnasium", "numpy", "rich", "yaml", "tensorboardX"}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_takes_less_than_a_third_second():
    """Measured inside the process, without the start of Python."""
    code = "import time; started = time.process_time(); import duetto; print(time.process_time() - started)"
    assert min(float(run(code)) for _ in range(3)) < 0.3


def test_import_loads_no_framework_or_slow_module():
    modules = set(run("import sys, duetto; print(*sys.modules)").split())
    assert "duetto" in modules
    assert not HEAVY & {name.partition(".")[0] for name in modules}


def test_algorithm_classes_load_no_framework():
    names = "duetto.DDPG, duetto.TD3, duetto.CustomNetwork, duetto.UsageError"
    modules = set(run(f"import sys, duetto; {names}; print(*sys.modules)").split())
    assert not {"torch", "jax", "equinox", "gymnasium"} & modules


@pytest.mark.parametrize(("backend", "other"), [("torch", "jax"), ("jax", "torch")])
def test_training_on_one_framework_never_imports_the_other(backend: str, other: str, tmp_path):
    code = f"""
import sys, duetto
duetto.train(
    duetto.TD3(hidden=(8,), batch_size=4, random_steps=4, learning_starts=4, replay_capacity=20), "Pendulum-v1",
    steps=10, backend="{backend}", device="cpu", evaluate_every=5, evaluation_episodes=1, runs_dir={str(tmp_path)!r},
    environment_options={{"max_episode_steps": 5}},
)
print("MODULES", *sys.modules)
"""
    modules = set(run(code).rpartition("MODULES")[2].split())
    assert backend in modules
    assert other not in modules
    assert not {"mujoco", "pybullet", "imageio", "equinox"} & modules  # equinox is needed only for custom networks


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'duetto' has no attribute 'PPO9'"):
        duetto.PPO9  # noqa: B018


def test_version_is_that_of_the_package():
    assert duetto.__version__ == metadata.version("duetto")
