import os
from pathlib import Path

import pytest

from gptlab.files import remove_leftovers, replacing


def test_the_new_content_takes_the_place_of_the_old(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with replacing(file) as temporary:
        temporary.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError), replacing(file) as temporary:
        temporary.write_text("halfway \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_content_is_on_the_disk_before_the_name_is_given_to_it(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert calls[:2] == ["fsync", "replace"]


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path):
    for name in (".state.pt.123.partial", "state.pt", ".hidden", "x.partial"):
        Path(tmp_path, name).write_text("x")
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", "state.pt", "x.partial"]
