import pytest
from demonstrated import recorded


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Record episodes of CartPole. Tests must not change them."""
    return recorded(tmp_path_factory.mktemp("demonstrations") / "cartpole")
