"""Figures and films of --mode=render, on known squares and with the small model."""

import dataclasses
import io
import json

import ml_collections
import numpy as np
import pytest
import small
import toy_scene
from PIL import Image
from test_figures import find

from ocloc_jax import render, weights
from ocloc_jax.figures import files, grid, parts, rendered

VIEWS = [(0.0, 0.0), (3.0, 2.0), (1.0, 4.0)]
OPTIONS = render.Options(num_samples=2, steps=3, frames=2)


@pytest.fixture(scope="module")
def toys():
    decoder = toy_scene.Squares()
    ours = [(5, 4, *toy_scene.RED), (8, 7, *toy_scene.GREEN), (2, 9, 0, 0, 0)]
    theirs = [(10, 11, *toy_scene.BLUE), (4, 4, 1, 1, 0)]
    return (
        toy_scene.scene(decoder, ours, views=VIEWS, presence=[0.999, 0.999, 0.01]),
        toy_scene.scene(decoder, theirs, views=VIEWS),
    )


def headers(monkeypatch) -> list[tuple[str, list[str]]]:
    """Titles and labels of all grids that are drawn from now on."""
    drawn, strip = [], grid.strip

    def spy(rows, row_labels, column_labels, title=""):
        texts = [x if isinstance(x, str) else x.text for x in column_labels]
        drawn.append((title, [text.replace("\n", " ") for text in texts]))
        return strip(rows, row_labels, column_labels, title)

    monkeypatch.setattr(grid, "strip", spy)
    return drawn


def test_editing_shows_every_object_removed_and_inserted(toys, monkeypatch):
    scene, other = toys
    drawn = headers(monkeypatch)
    picture = rendered.editing(scene, 4, (7, other))
    assert dict(drawn) == {
        "Scene 4": ["input", "rendered", "segmentation"],
        "One object removed, with its shadow": ["without object 1", "without object 2"],
        "Scene 7": ["rendered", "segmentation"],
        "Scene 4 with one object of scene 7": [
            "with its object 1",
            "with its object 2",
        ],
    }
    for view in range(len(VIEWS)):
        assert find(picture, scene.remove([1]).render()[view])
        assert find(picture, scene.insert(other, 0).render()[view])
        assert find(picture, other.render()[view])
    assert not find(picture, scene.remove([2]).render()[0])  # an empty slot
    drawn.clear()
    rendered.editing(scene, 4, None)
    assert len(drawn) == 2


def test_scene_without_objects_shows_its_likeliest_slot():
    squares = [(5, 4, *toy_scene.RED), (8, 7, *toy_scene.GREEN)]
    scene = toy_scene.scene(
        toy_scene.Squares(), squares, views=VIEWS, presence=[0.1, 0.3]
    )
    picture = rendered.editing(scene, 0, None)
    assert find(picture, scene.remove([1]).render()[0])


def test_interpolation_goes_from_observed_to_observed(toys, monkeypatch):
    scene, _ = toys
    drawn = headers(monkeypatch)
    picture = rendered.interpolation(scene, 3)
    assert drawn[0][1] == ["observed start", "0.00", "0.50", "1.00", "observed end"]
    for pair in ((0, 1), (1, 2), (2, 0)):
        middle = scene.at(scene.interpolate(*pair, 3)[1:2])
        assert find(picture, middle.render()[0])
        assert find(picture, parts.segmentation(middle.composition)[0])
    height = 6 * (16 * 6 + grid.GAP)
    assert height < picture.shape[0] < height + 90


def test_film_is_a_round_trip(toys):
    scene, _ = toys
    frames = rendered.film(scene, "view", 2)
    assert len(frames) == 6 and len({frame.shape for frame in frames}) == 1
    path = np.float32([(0, 0), (1.5, 1), (3, 2), (2, 3), (1, 4), (0.5, 2)])
    images = scene.render(views=path)
    for frame, image in zip(frames, images, strict=True):
        larger = image.repeat(12, axis=0).repeat(12, axis=1)
        assert find(frame, larger)
    two = scene.at(np.float32(VIEWS[:2]))
    assert len(rendered.film(two, "view", 3)) == 6  # there and back


def test_scene_of_one_view_has_no_interpolation(toys):
    scene, other = toys
    one = toy_scene.scene(scene.decoder, [(5, 4, *toy_scene.RED)], views=VIEWS[:1])
    names = [name for name, _ in render.pictures(one, 0, None, OPTIONS)]
    assert names == [
        *["decomposition.png", "editing.png", "sampling.png"],
        *["sampling.gif", "sampling.webp"],
    ]


@pytest.mark.parametrize("suffix", files.ANIMATIONS)
def test_animation_keeps_frames_and_colours(suffix: str):
    frames = [np.full((20, 30, 3), 255, np.uint8) for _ in range(4)]
    for i, frame in enumerate(frames):
        frame[5:15, 5 + i : 15 + i] = (200, 40 * i, 30)
    data = files.encode_animation(frames, suffix, fps=10)
    with Image.open(io.BytesIO(data)) as film:
        assert film.n_frames == 4 and film.info["loop"] == 0
        for i, frame in enumerate(frames):
            film.seek(i)
            film.load()
            assert film.info["duration"] == 100
            np.testing.assert_array_equal(np.asarray(film.convert("RGB")), frame)
    assert data == files.encode_animation(frames, suffix, fps=10)


def test_gif_keeps_rare_colours_and_gradients():
    ramp = np.linspace(60, 200, 128)[:, None] + np.linspace(0, 20, 64)
    frames = np.stack([ramp, ramp + 5, ramp + 3 * np.sin(ramp)], axis=-1)
    frames = np.stack([frames, frames + 10]).astype(np.uint8)
    frames[:, :40, :40], frames[0, 50, 50] = 255, (214, 39, 40)
    data = files.encode_animation(list(frames), ".gif")
    with Image.open(io.BytesIO(data)) as film:
        for i, frame in enumerate(frames.astype(int)):
            film.seek(i)
            seen = np.asarray(film.convert("RGB"))
            assert np.abs(seen - frame).max() <= 8
            assert (seen[:40, :40] == 255).all()


def test_animation_names_what_does_not_fit(tmp_path):
    frame = np.zeros((20, 30, 3), np.uint8)
    with pytest.raises(ValueError, match="one size"):
        files.encode_animation([frame, frame[:10]], ".gif")
    with pytest.raises(ValueError, match="one size"):
        files.encode_animation([], ".gif")
    with pytest.raises(ValueError, match="end the name in .gif or .webp"):
        files.save_animation(tmp_path / "a.png", [frame])


def small_config(**changes) -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.data = dict(
        scenes=dict(size=16, num_views=2, min_objects=1, max_objects=2, samples=1),
        num_scenes=dict(train=1, test=3),
        seed=0,
    )
    config.render = dict(split="test", scenes=(0, 2), num_views=2, num_slots=2)
    config.render.update(num_samples=2, steps=2, frames=1, seed=0)
    config.update_from_flattened_dict(changes)
    return config


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    model = small.model()
    weights.save(workdir / "single" / weights.BEST, model, small.params(model))
    return workdir


def test_run_leaves_all_files_and_how_they_were_made(workdir):
    directory = render.run(small_config(), workdir)
    made = sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*"))
    names = ["decomposition.png", "editing.png"]
    names += [
        f"{kind}.{end}"
        for kind in ("interpolation", "sampling")
        for end in ("gif", "png", "webp")
    ]
    scenes = ("scene_000", "scene_002")
    assert made == ["render.json", *(f"{s}/{name}" for s in scenes for name in names)]
    record = json.loads((directory / "render.json").read_text())
    assert record["weights"].endswith("single/best.safetensors")
    assert record["scenes"] == [0, 2] and set(record["presence"]) == {"0", "2"}


def test_insertion_takes_the_next_scene():
    assert [render._another(i, [3, 5, 8], 9) for i in (3, 5, 8)] == [5, 8, 3]
    assert render._another(8, [8], 9) == 0
    assert render._another(0, [0], 1) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"render.split": "validation"}, r"'validation'.*\['test', 'train'\]"),
        ({"render.scenes": (0, 3)}, "scenes 0 to 2"),
        ({"render.scenes": ()}, "scenes 0 to 2"),
        ({"render.num_views": 3}, "num_views is 3.*have 2 views"),
        ({"render.steps": 1}, "steps is 1; use 2"),
        ({"render.num_slots": 0}, "num_slots is 0"),
    ],
)
def test_impossible_values_are_named(workdir, change, message: str):
    with pytest.raises(ValueError, match=message):
        render.run(small_config(**change), workdir)


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no weights"):
        render.run(small_config(), tmp_path)
    with pytest.raises(ValueError, match="other.safetensors"):
        render.run(small_config(), tmp_path, weights=tmp_path / "other.safetensors")
    assert not (tmp_path / "render").exists()


def test_options_are_those_of_the_configs():
    from configs import common, demo

    names = {field.name for field in dataclasses.fields(render.Options)}
    for config in (demo.get_config(), common.published("clevr", "smoke")):
        assert set(config.render) <= names
        render.Options(**config.render)
        sizes = config.data.num_scenes
        assert max(config.render.scenes) < sizes[config.render.split]
        assert config.render.num_views <= config.data.scenes.num_views
