"""The library: loading, inferring, reading, editing and rendering a scene.

What needs exact pixels uses `toy_scene`, whose squares are known; what needs networks
uses the small model.
"""

import io
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
import toy_scene
from PIL import Image

import ocloc_jax
from ocloc_jax import api, inference, photos, weights

ROOT = pathlib.Path(__file__).parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NUM_VIEWS, NUM_SLOTS = 3, 4
GROUND = np.rint((np.float32(toy_scene.GROUND) + 1) * 127.5).astype(np.uint8)


def random_images(num_views: int = NUM_VIEWS, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (num_views, small.SIZE, small.SIZE, 3)
    return rng.integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> pathlib.Path:
    model = small.model()
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    weights.save(path, model, small.params(model), num_slots=NUM_SLOTS)
    return path


@pytest.fixture(scope="module")
def loaded(path) -> api.Loaded:
    return ocloc_jax.load(path)


@pytest.fixture(scope="module")
def scene(loaded):
    return loaded.infer(random_images())


def test_import_is_cheap_and_library_needs_no_flags(path):
    code = (
        "import sys, ocloc_jax; assert 'jax' not in sys.modules; "
        f"model = ocloc_jax.load({str(path)!r}); "
        "from absl import flags; assert not flags.FLAGS.is_parsed(); "
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_scene_is_what_the_model_infers(loaded, scene):
    images = jnp.asarray(random_images(), jnp.float32) / 127.5 - 1
    args = loaded.model, loaded.params, images, jax.random.key(0), NUM_SLOTS
    found, composed = jax.jit(inference.infer, static_argnums=(0, 4))(*args)
    np.testing.assert_allclose(scene.presence, found.presence, rtol=1e-4)
    np.testing.assert_allclose(scene.latents.view, found.view, rtol=1e-3, atol=1e-5)
    expected = np.clip((np.asarray(composed.recon) + 1) / 2, 0, 1)
    np.testing.assert_allclose(scene.reconstruction, expected, atol=1e-4)
    np.testing.assert_allclose(scene.order, composed.order, rtol=1e-3, atol=1e-4)
    expected = np.rint(255 * scene.reconstruction)
    np.testing.assert_array_equal(scene.render(), expected.astype(np.uint8))


def test_arrays_have_the_axes_they_say(scene):
    m, k, pixels = NUM_VIEWS, NUM_SLOTS, (small.SIZE, small.SIZE)
    assert scene.masks.shape == (m, k + 1, *pixels)
    np.testing.assert_allclose(scene.masks.sum(axis=1), 1, atol=1e-5)
    assert scene.shapes.shape == scene.shadows.shape == (m, k, *pixels)
    assert scene.appearance.shape == (m, k, *pixels, 3)
    assert scene.background.shape == scene.images.shape == (m, *pixels, 3)
    assert scene.segmentation.shape == (m, *pixels)
    assert scene.order.shape == scene.ranks.shape == (m, k)
    assert scene.count == len(scene.objects) == (scene.presence >= 0.5).sum()
    assert scene.decomposition().shape[-1] == 3


def test_uint8_and_unit_range_are_the_same_images(loaded, scene):
    again = loaded.infer(random_images().astype(np.float64) / 255)
    np.testing.assert_allclose(again.latents.obj, scene.latents.obj, rtol=1e-4)
    other = loaded.infer(random_images(), seed=1)
    assert not np.allclose(other.latents.obj, scene.latents.obj, rtol=1e-2)


def test_nothing_is_compiled_twice(loaded, scene):
    programs = loaded._infer, loaded._decode, loaded._compose
    scene.render()
    before = [program._cache_size() for program in programs]
    again = loaded.infer(random_images(seed=3), seed=5)
    again.render(objects=[0], shadows=False)
    again.render(views=again.sample_views(5), background=False)
    assert [program._cache_size() for program in programs] == before


def test_number_of_slots_comes_from_the_file_or_is_the_published_one(tmp_path, loaded):
    assert loaded.num_slots == NUM_SLOTS
    silent = tmp_path / "single" / "best.safetensors"
    weights.save(silent, loaded.model, loaded.params)
    assert weights.num_slots(silent) is None
    assert ocloc_jax.load(tmp_path).num_slots == 7  # a run, found by its directory


def test_weights_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no weights.*train there"):
        ocloc_jax.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="runs/none"):
        ocloc_jax.load(tmp_path / "runs/none")
    with pytest.raises(ValueError, match="none.safetensors: not a readable"):
        ocloc_jax.load(tmp_path / "none.safetensors")


def test_later_stage_is_preferred(tmp_path, loaded):
    for stage in ("single", "multi"):
        weights.save(tmp_path / stage / weights.BEST, loaded.model, loaded.params)
    assert weights.find(tmp_path).parent.name == "multi"


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 16, 16, 3), np.uint16), "not uint16; divide.*65535"),
        (np.zeros((2, 16, 16, 3), np.int64), "not int64"),
        (np.full((2, 16, 16, 3), 1.5), r"from 1.5 to 1.5.*\(x \+ 1\) / 2"),
        (np.full((2, 16, 16, 3), -0.1), "in .0, 1., but these go from -0.1"),
        (np.full((2, 16, 16, 3), np.nan), "from nan to nan"),
        (np.zeros((16, 16, 3)), r"not \[16, 16, 3\]; .*images\[None\]"),
        (np.zeros((1, 2, 16, 16, 3)), "one scene at a time"),
        (np.zeros((2, 3, 16, 16)), "moveaxis"),
        (np.zeros((2, 16, 16, 4)), "alpha"),
        (np.zeros((2, 16, 16, 1)), "grey"),
        (np.zeros((0, 16, 16, 3)), r"not \[0, 16, 16, 3\]"),
        ([], r"not \[0\]"),
        (np.zeros((2, 18, 16, 3)), "18x16 do not fit.*multiples of 4"),
        ("one.png", "'one.png' is one name; pass a list"),
        (["none.png"], "none.png: cannot be read"),
        ([np.zeros((16, 16, 3)), np.zeros((8, 16, 3))], "share a size"),
    ],
    ids=str,
)
def test_images_that_do_not_fit_are_named(loaded, images, message: str):
    with pytest.raises(ValueError, match=message):
        loaded.infer(images)


def test_size_is_for_pictures_and_slots_are_counted(loaded):
    with pytest.raises(ValueError, match="resize arrays beforehand"):
        loaded.infer(random_images(), size=16)
    with pytest.raises(ValueError, match="num_slots is 0"):
        loaded.infer(random_images(), 0)


def test_pictures_and_files_are_read_upright(tmp_path):
    pixels = random_images(1)[0]
    Image.fromarray(pixels).save(tmp_path / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side: turn clockwise to see it upright
    buffer = io.BytesIO()
    Image.fromarray(np.rot90(pixels)).save(buffer, "PNG", exif=exif)
    views = photos.as_views([tmp_path / "a.png", Image.open(buffer), pixels])
    for view in views:
        np.testing.assert_allclose(view, pixels / 255, atol=1e-6)
    wide = Image.fromarray(np.concatenate([0 * pixels, pixels, 0 * pixels], axis=1))
    grey = Image.new("L", (40, 20), 255)
    middle, white = photos.as_views([wide, grey], size=16)
    np.testing.assert_allclose(middle, pixels / 255, atol=1e-2)
    assert (white == 1).all()


# Squares of 5 x 5; in both views the green one, nearer, hides a corner of the red one.
SQUARES = [(5, 4, *toy_scene.RED), (8, 7, *toy_scene.GREEN)]
VIEWS = [(0, 0), (3, 2)]


@pytest.fixture
def toy():
    return toy_scene.scene(toy_scene.Squares(), SQUARES, views=VIEWS)


def where(images: np.ndarray, colour: tuple[float, float, float]) -> np.ndarray:
    rgb = np.rint((np.float32(colour) + 1) * 127.5)
    return (np.abs(images.astype(float) - rgb) <= 1).all(axis=-1)


def test_removed_object_shows_what_it_hid_and_takes_its_shadow_along(toy):
    assert where(toy.render(), toy_scene.RED).sum() == 2 * (25 - 4)
    alone = toy.remove([1])
    assert where(alone.render(), toy_scene.RED).sum() == 2 * 25
    dark = (alone.shadows.max(axis=1) > 0.5).sum()
    assert dark == 2 * 4 * 5  # of the red one only, and none inside it
    empty = toy.remove([0, 1])
    assert (empty.count, alone.count, toy.count) == (0, 1, 2)
    np.testing.assert_array_equal(empty.render(), np.tile(GROUND, (2, 16, 16, 1)))
    np.testing.assert_array_equal(toy.render(objects=[0]), alone.render())


def test_shadows_and_background_can_be_left_out(toy):
    shadowed, lit = toy.render(), toy.render(shadows=False)
    darker = (shadowed != lit).any(axis=-1)
    in_shadow = shadowed[darker].astype(float)
    np.testing.assert_allclose(in_shadow, 0.2 * lit[darker], atol=1)
    assert where(lit, toy_scene.GROUND).sum() == 2 * (256 - 46)
    white = toy.render(background=False, shadows=False)
    assert where(white, (1, 1, 1)).sum() == 2 * (256 - 46)
    paper = toy.render(background=False)
    assert where(paper, (-0.6, -0.6, -0.6)).sum() == darker.sum()


def test_views_are_indices_or_latents(toy):
    both = toy.render()
    np.testing.assert_array_equal(toy.render(views=[1, 0, 1]), both[[1, 0, 1]])
    np.testing.assert_array_equal(toy.render(views=-1), both[[1]])
    np.testing.assert_array_equal(toy.render(views=[(3, 2.0)]), both[[1]])
    path = toy.interpolate(0, 1, 4)
    np.testing.assert_allclose(path, [(0, 0), (1, 2 / 3), (2, 4 / 3), (3, 2)])
    moved = toy.render(views=path, objects=[0])
    rows = np.argwhere(where(moved, toy_scene.RED).any(axis=-1))
    assert [rows[rows[:, 0] == i, 1].min() for i in range(4)] == [3, 4, 5, 6]
    assert set(toy.decoder.num_decoded) == {2}  # never more at once than observed
    assert toy.at(path).images is None


def test_inserted_object_is_the_last_slot_and_nothing_else_changes(toy):
    squares = [(0, 0, *toy_scene.RED), (11, 9, *toy_scene.BLUE)]
    other = toy_scene.scene(toy.decoder, squares, views=VIEWS)
    both = toy.insert(other, 1)
    assert both.count == 3 and toy.count == 2
    blue = where(both.render(), toy_scene.BLUE)
    assert blue[0].sum() == 25 and blue[0, 9:14, 7:12].all()  # nearest: hides others
    np.testing.assert_array_equal(both.remove([2]).render(), toy.render())
    np.testing.assert_array_equal(both.ranks, [[3, 2, 1], [3, 2, 1]])
    with pytest.raises(ValueError, match="same loaded weights"):
        toy.insert(toy_scene.scene(toy_scene.Squares(), squares, views=VIEWS), 1)


def test_segmentation_and_shapes_tell_hidden_parts(toy):
    assert toy.shapes[0, 0].round().sum() == 25
    assert (toy.segmentation[0] == 0).sum() == 25 - 4
    assert (toy.segmentation[0] == 2).sum() == 256 - 46  # the background
    np.testing.assert_array_equal(toy.ranks, [[2, 1], [2, 1]])


def test_sampled_viewpoints_follow_the_prior(toy):
    views = toy.sample_views(4000, seed=1)
    np.testing.assert_allclose(views.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(np.cov(views.T), np.eye(2), atol=0.1)
    np.testing.assert_array_equal(views, toy.sample_views(4000, seed=1))
    assert (views != toy.sample_views(4000, seed=2)).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.render(objects=[2]), r"no slots \[2\]; use 0 to 1"),
        (lambda s: s.remove([-1]), r"no slots \[-1\]"),
        (lambda s: s.insert(s, 5), r"no slots \[5\]"),
        (lambda s: s.render(views=[2]), r"no views \[2\]; use 0 to 1"),
        (lambda s: s.interpolate(0, 7, 3), r"no views \[7\]"),
        (lambda s: s.interpolate(0, 1, 1), "1 steps; use 2 or more"),
        (lambda s: s.render(views=np.zeros((3, 5))), r"\[n, 2\], not \[3, 5\]"),
        (lambda s: s.at(np.zeros((0, 2))), r"not \[0, 2\]"),
        (lambda s: s.sample_views(0), "0 viewpoints"),
    ],
)
def test_what_is_not_there_is_named(toy, call, message: str):
    with pytest.raises(ValueError, match=message):
        call(toy)


def snippets() -> list:
    found = []
    for file in DOCS:
        for i, code in enumerate(
            re.findall(r"```python\n(.*?)```", file.read_text(), re.S)
        ):
            if "from ocloc_jax import load" in code:
                found.append(pytest.param(code, id=f"{file.name}-{i}"))
    return found


@pytest.mark.parametrize("code", snippets())
def test_documented_code_runs(code: str, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "demo" / "single"
    run.mkdir(parents=True)
    (run / weights.BEST).write_bytes(path.read_bytes())
    for i, pixels in enumerate(random_images()):
        Image.fromarray(pixels).save(f"view_{i + 1}.png")
    exec(code, {"images": random_images()})


def test_library_is_documented():
    assert snippets()
