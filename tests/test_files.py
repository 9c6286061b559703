import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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


def test_threads_that_write_one_file_do_not_disturb_each_other(tmp_path):
    file = tmp_path / "a.txt"

    def write(letter):
        for _ in range(50):
            with replacing(file) as temporary:
                temporary.write_text(letter * 1000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))  # an error in a thread is raised here
    assert file.read_text() in {letter * 1000 for letter in "abcd"}
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("exists", [True, False], ids=["to a file", "to nothing yet"])
def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path, exists):
    (tmp_path / "disk").mkdir()
    target, link, second = tmp_path / "disk" / "a.txt", tmp_path / "link", tmp_path / "second"
    if exists:
        target.write_text("old")
    link.symlink_to(Path("disk", "a.txt"))
    second.symlink_to(link)
    with replacing(second) as temporary:
        temporary.write_text("new")
        assert temporary.parent.samefile(target.parent)  # on the target's own disk, so that it can be moved
    assert link.is_symlink()
    assert second.is_symlink()
    assert target.read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "disk", "link", "second"]


def test_links_in_a_circle_are_an_error_and_stay(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(OSError, match="link"), replacing(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_file_keeps_its_permissions(tmp_path, mode):
    file = tmp_path / "a.txt"
    file.write_text("old")
    file.chmod(mode)
    with replacing(file) as temporary:
        temporary.write_text("new")
    assert file.stat().st_mode & 0o777 == mode


def killed_while_it_writes(file):
    writer = "import os, sys, pathlib, gptlab.files as f\nwith f.replacing(pathlib.Path(sys.argv[1])) as t:\n"
    writer += "    t.write_text('half')\n    os._exit(1)"
    subprocess.run([sys.executable, "-c", writer, str(file)], check=False)


def test_what_a_killed_process_leaves_is_found_where_a_link_points_to(tmp_path):
    run, disk = tmp_path / "run", tmp_path / "disk"
    run.mkdir()
    disk.mkdir()
    (run / "state.pt").symlink_to(disk / "state.pt")
    killed_while_it_writes(run / "state.pt")
    killed_while_it_writes(run / "log.csv")
    killed_while_it_writes(disk / "another")
    assert [len([p for p in folder.iterdir() if p.suffix == ".partial"]) for folder in (run, disk)] == [1, 2]
    remove_leftovers(run)
    assert [path.name for path in run.iterdir()] == ["state.pt"]
    (left,) = disk.iterdir()
    assert left.name.startswith(".another.")  # not of this run


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path):
    for name in (".state.pt.123.partial", "state.pt", ".hidden", "x.partial"):
        Path(tmp_path, name).write_text("x")
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", "state.pt", "x.partial"]
