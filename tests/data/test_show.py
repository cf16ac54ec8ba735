"""`phimu data show`, on sets with known answers."""

from phimu.cli import main

PNG = b"\x89PNG"


def test_show(rows, write, tmp_path, capsys):
    columns = rows((5, 6), (True, False), 17, 6) | {"next_observations": None}
    path = write(columns, "halfcheetah_medium.hdf5")
    picture = tmp_path / "set.png"
    assert main(["data", "show", str(path), "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(PNG)
    said = capsys.readouterr().out
    for part in (
        f"source        {path} (d4rl)",
        "task          HalfCheetah-v4",
        "transitions   9",
        "episodes      2: 0 terminated, 2 cut",
        "score         ",
        "of 23 dimensions",
        "which never terminates, taken as cuts: 1",
        "rows dropped, since their next observation is not in the file: 2",
    ):
        assert part in said
    assert main(["data", "show", str(path), "--sha256", "0" * 64]) == 2
    assert "is damaged or another file" in capsys.readouterr().err


def test_show_scales_actions(rows, write, capsys):
    columns = rows()
    path = str(write(columns | {"actions": 2 * columns["actions"]}, "logged.npz"))
    assert main(["data", "show", path]) == 2
    assert "outside of its range -1 to 1" in capsys.readouterr().err
    assert main(["data", "show", path, "--action-low", "-2", "--action-high", "2", "2"]) == 0
    assert "-1 and 1 stand for -2 and 2" in capsys.readouterr().out


def test_data_explains_itself(capsys):
    for arguments in (["data"], ["data", "--help"]):
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert "  show         check a dataset" in said
        assert "phimu data show hopper_medium.hdf5" in said
    assert main(["data", "shwo"]) == 2
    assert "There is no subcommand of data 'shwo'" in capsys.readouterr().err
