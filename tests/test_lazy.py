"""Names of a package that are imported when they are first used."""

import sys
from types import ModuleType

import pytest

from gptlab.lazy import lazily


@pytest.fixture
def package(monkeypatch):
    """A package ``p`` with one public name, ``x``, in its module ``p.home``."""
    p, home = ModuleType("p"), ModuleType("p.home")
    p.__all__, home.x = ["x"], 1
    p.__getattr__, p.__dir__ = lazily("p", {"x": "home"})
    monkeypatch.setitem(sys.modules, "p", p)
    monkeypatch.setitem(sys.modules, "p.home", home)
    return p


def test_a_name_is_looked_up_once_and_then_is_the_packages_own(package):
    assert "x" not in vars(package)
    assert package.x == 1
    assert vars(package)["x"] == 1


def test_dir_lists_a_name_before_it_is_looked_up(package):
    assert {"x", "__all__"} <= set(dir(package))
    assert "x" not in vars(package)


def test_an_unknown_name_lists_what_there_is(package):
    with pytest.raises(AttributeError, match="module 'p' has no attribute 'y'; it offers x"):
        package.y  # noqa: B018
