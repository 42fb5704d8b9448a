"""The scene sheet: what is embedded, and what a real browser makes of it."""

import pathlib
import re

import chromium
import discs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from flax import traverse_util
from PIL import Image

from ocloc_jax import data, inference, sheet, weights
from ocloc_jax.models import compose
from ocloc_jax.schedules import Coefficients
from ocloc_jax.sheet import __main__ as command
from ocloc_jax.sheet import document, sprites, viewpoints

NUM_SLOTS, STEPS = 4, 2
TOLERANCE = 2  # of 255

needs_chromium = pytest.mark.skipif(
    chromium.BINARY is None, reason="Chromium is not installed"
)


def visible_params(model):
    """Of the small model, moved to where objects and shadows are seen."""
    flat = traverse_util.flatten_dict(small.params(model), sep="/")
    flat = {name: np.array(value) for name, value in flat.items()}
    channels, net = 6 if model.shadows else 4, "decoder/object_net/conv_1"
    flat["decoder/background_net/conv_1/kernel"] *= 0.15
    flat[f"{net}/kernel"] *= np.float32([0.4, 0.4, 0.4, 2, 6, 2])[:channels]
    flat[f"{net}/bias"] = np.float32([0, 0, 0, 3.5, -1, 3])[:channels]
    flat["encoder/obj_head/layer_2/bias"][-1] = 2
    flat = {name: jnp.asarray(value) for name, value in flat.items()}
    return traverse_util.unflatten_dict(flat, sep="/")


def photographs(num_scenes: int = 2, num_views: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (num_scenes, num_views, small.SIZE, small.SIZE, 3)
    return list(rng.integers(0, 256, shape, np.uint8))


@pytest.fixture(scope="module")
def model():
    return small.model()


@pytest.fixture(scope="module")
def params(model):
    return visible_params(model)


@pytest.fixture(scope="module")
def seen(model, params):
    options = dict(num_slots=NUM_SLOTS, steps=STEPS)
    return list(sheet.walks(model, params, photographs(), **options))


@pytest.fixture(scope="module")
def written(seen, tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("sheet") / "sheet.html"
    path.write_text(sheet.page(seen, ["first", "</script><b>second"], "a & b"))
    return path


@pytest.fixture(scope="module", params=[{"mode": "paper"}, {"shadows": False}], ids=str)
def other(request) -> sheet.Walk:
    """By a model that treats shadows differently."""
    model = small.model(**request.param)
    options = dict(num_slots=NUM_SLOTS, steps=1)
    return next(sheet.walks(model, visible_params(model), photographs(1), **options))


def expected(walk: sheet.Walk, position: int, **options) -> np.ndarray:
    """Bytes of the model's own composition."""
    recon = discs.composed(walk, **options)[position]
    return (np.clip(recon, -1, 1) + 1) * 127.5


def check_pixels(answer: dict, wanted: np.ndarray) -> None:
    shape = answer["height"], answer["width"], 4
    found = np.array(answer["data"], np.float32).reshape(shape)
    assert (found[..., 3] == 255).all()
    np.testing.assert_allclose(found[..., :3], wanted, rtol=0, atol=TOLERANCE)


def checkerboard(size: int) -> np.ndarray:
    y, x = np.mgrid[:size, :size] // max(1, size // 16)
    return np.where((x + y) % 2, np.float32(0.6), np.float32(1))[None, ..., None]


# The walk.


@pytest.fixture(scope="module")
def inferred(model, params) -> dict[str, np.ndarray]:
    """The first scene by the model alone: as it is, and without its second object."""
    key = jax.random.fold_in(jax.random.key(0), 0)
    images = data.to_model_range(jnp.asarray(photographs()[0]))[None]

    @jax.jit
    def run(params):
        found, scene = inference.infer(model, params, images, key, NUM_SLOTS)
        layers = model.bind({"params": params}).decode(found, *images.shape[2:4])
        logit = found.presence_logit.at[:, 1].set(-jnp.inf)
        without = found.replace(presence_logit=logit)
        edited = compose.compose(layers, without, Coefficients())
        recon = {"recon": scene.recon, "without": edited.recon}
        return {"view": found.view, "presence": found.presence, **recon}

    return {name: np.asarray(value[0]) for name, value in run(params).items()}


def test_walk_passes_through_the_inferred_views(inferred, seen):
    order = viewpoints.shortest_way(inferred["view"])
    at_knots = seen[0].recon[seen[0].knots]
    np.testing.assert_allclose(at_knots, inferred["recon"][order], atol=1e-4)
    np.testing.assert_array_equal(seen[0].images, photographs()[0][order])
    np.testing.assert_allclose(seen[0].presence, inferred["presence"], atol=1e-6)


def test_hiding_an_object_with_its_shadow_is_presence_zero(inferred, seen):
    """What the browser is compared with is what the model composes itself."""
    shown = np.array([1, 0, 1, 1])
    ours = discs.composed(seen[0], objects=shown, shadows=shown)[seen[0].knots]
    order = viewpoints.shortest_way(inferred["view"])
    np.testing.assert_allclose(ours, inferred["without"][order], atol=1e-4)


def test_the_small_model_shows_something_to_hide(seen):
    whole = discs.composed(seen[0])
    np.testing.assert_allclose(whole, seen[0].recon, atol=1e-4)
    for what in ("objects", "shadows"):
        shown = np.array([1, 0, 1, 1])
        change = abs(discs.composed(seen[0], **{what: shown}) - whole).max() * 127.5
        assert change > 5 * TOLERANCE, what


def test_shortest_way_goes_to_the_nearest_that_is_left():
    views = np.float32([[0, 0], [5, 0], [1, 0], [3, 0]])
    assert viewpoints.shortest_way(views).tolist() == [0, 2, 3, 1]
    assert viewpoints.shortest_way(views[:1]).tolist() == [0]


def test_interpolation_is_straight_and_meets_every_view():
    views = np.float32([[0, 1], [2, 1], [2, 5]])
    path, knots = viewpoints.interpolate(views, 4)
    assert knots.tolist() == [0, 4, 8] and path.shape == (9, 2)
    np.testing.assert_allclose(path[knots], views)
    np.testing.assert_allclose(path[1], [0.5, 1])
    np.testing.assert_allclose(path[6], [2, 3])


# What is embedded.


def test_rounding_to_bytes_keeps_the_models_pictures(seen, other):
    for walk in (*seen, other):
        assert sprites.rounding_error(walk, sprites.pack(walk)) < TOLERANCE


def test_rounding_error_notices_a_wrong_layer(seen):
    packed = sprites.pack(seen[0])
    packed.covers[3, 2, :4, :4, 0] ^= 64
    assert sprites.rounding_error(seen[0], packed) > 5


def test_colours_outside_the_usual_range_survive():
    walk = discs.walk(size=8, num_views=2, steps=1)
    walk.background[...] = 1.8  # under a shadow this is no longer white
    walk.recon[...] = discs.composed(walk)
    packed = sprites.pack(walk)
    assert sprites.rounding_error(walk, packed) < TOLERANCE
    assert packed.ranges[-1].max() > 1.79


def test_ranks_count_nearer_objects_and_keep_ties():
    walk = discs.walk(size=8, num_views=2, steps=1)
    walk.order[0] = [3, 1, 2, 2, 0, 5]
    assert sprites.pack(walk).ranks[0].tolist() == [1, 4, 2, 2, 5, 0]


def test_tiles_lie_where_the_browser_looks():
    tiles = np.random.default_rng(0).integers(0, 256, (3, 2, 4, 5, 3), np.uint8)
    picture = sprites.spread(tiles)
    assert picture.shape == (8, 15, 3)
    np.testing.assert_array_equal(picture[4:8, 10:15], tiles[2, 1])


def test_a_path_too_long_for_one_picture_is_refused():
    with pytest.raises(ValueError, match="fewer steps or photographs"):
        sprites.spread(np.zeros((300, 1, 2, 64, 3), np.uint8))


def test_four_scenes_stay_small():
    text = sheet.page([discs.walk(seed=i) for i in range(4)], list("abcd"))
    assert len(text) < 3e6


def test_page_needs_nothing_else(written):
    text = written.read_text()
    assert not re.search(r'(src|href)=(?!"data:)', text)
    assert "http" not in text.replace("http-equiv", "") and "{{" not in text
    assert "default-src 'none'" in text
    assert "</script><b>second" not in text and "a &amp; b" in text


# The browser.


@needs_chromium
def test_browser_composes_as_the_model(written, seen):
    steps = [
        "pixels('picture')",
        "slide(1)",
        "pixels('picture')",
        "slide(4)",
        "pixels('picture')",
    ]
    steps += [
        "$$('#scenes button:nth-child(2)').click()",
        "pixels('picture')",
        "$$('#scenes').textContent",
    ]
    first, _, second, _, third, _, other, names = chromium.ask(written, steps)
    for position, answer in ((0, first), (1, second), (4, third)):
        check_pixels(answer, expected(seen[0], position))
    check_pixels(other, expected(seen[1], 0))
    assert names == "first</script><b>second"


@needs_chromium
def test_browser_hides_what_a_person_switches_off(written, seen):
    box = "[...document.querySelectorAll('.part')].find((x) => x.dataset.k === '{}')"
    toggle = f"({box}).querySelector('[data-what={{}}] input').click()"
    steps = [
        "slide(3)",
        toggle.format(1, "objects"),
        "pixels('picture')",
        toggle.format(2, "shadows"),
        "pixels('picture')",
        "$$('[data-what=background] input').click()",
        "pixels('picture')",
        "$$('#edited').hidden",
        "$$('#none').click()",
        "pixels('picture')",
        "$$('#all').click()",
        "pixels('picture')",
        "$$('#edited').hidden",
    ]
    answers = chromium.ask(written, steps)
    objects, shadows = np.array([1, 0, 1, 1]), np.array([1, 1, 0, 1])
    board = checkerboard(small.SIZE)
    wanted = {
        2: dict(objects=objects),
        4: dict(objects=objects, shadows=shadows),
        6: dict(objects=objects, shadows=shadows, background=board),
        9: dict(objects=np.zeros(4), shadows=np.zeros(4), background=board),
        11: {},
    }
    for i, options in wanted.items():
        check_pixels(answers[i], expected(seen[0], 3, **options))
    assert answers[7] is False and answers[12] is True


@needs_chromium
def test_browser_composes_other_models(other, tmp_path):
    path = tmp_path / "sheet.html"
    path.write_text(sheet.page([other], ["other"]))
    read = "pixels('picture')"
    answers = chromium.ask(path, ["slide(1)", read, "press('Digit1', '1')", read])
    check_pixels(answers[1], expected(other, 1))
    check_pixels(answers[3], expected(other, 1, objects=np.array([0, 1, 1, 1])))


@needs_chromium
def test_browser_segments_orders_and_says_what_is_imagined(tmp_path):
    walk = discs.walk(size=32, num_views=2, steps=4)
    path = tmp_path / "discs.html"
    path.write_text(sheet.page([walk], ["discs"]))
    text = "document.getElementById('{}').textContent"
    steps = [
        "pixels('segments')",
        "[...document.querySelectorAll('#order li')].map((x) => x.textContent)",
        text.format("kind"),
        "pixels('input')",
        "slide(1)",
        text.format("kind"),
        text.format("kind-text"),
        "$$('#position').getAttribute('aria-valuetext')",
        text.format("count"),
        "press('Digit2', '2')",
        "[...document.querySelectorAll('#order li')].map((x) => x.textContent)",
        "press('KeyB', 'b')",
        "$$('[data-what=background] input').checked",
        "press('ArrowRight', 'ArrowRight')",
        "Number($$('#position').value)",
    ]
    answers = chromium.ask(path, steps)
    masks = discs.masks(walk, walk.shape, walk.order, None, 1)[1][0]
    left = np.prod(1 - walk.shape[0] * walk.presence[:, None, None], axis=0)
    owner = np.concatenate([masks, left[None]]).argmax(axis=0)
    colours = [*document.grid.object_colours(6), document.grid.BACKGROUND_COLOUR]
    shown = np.array(answers[0]["data"]).reshape(32, 32, 4)[..., :3]
    same = (shown == np.array(colours)[owner]).all(axis=-1)
    assert same.mean() > 0.99  # rounding may decide a tie at an edge
    for answer, position in ((answers[1], 0), (answers[10], 1)):
        nearest = [k for k in np.argsort(-walk.order[position]) if k < 4]
        nearest = [k for k in nearest if position == 0 or k != 1]
        assert answer == [f"Object {k + 1}" for k in nearest]
    assert answers[2] == "Reconstruction"
    check_pixels(answers[3], walk.images[0])
    assert answers[5:8] == ["Imagined", "between 1 and 2", "Imagined between 1 and 2"]
    assert answers[8] == "The model counts 4 objects."
    assert answers[12] is False and answers[14] == 2


@needs_chromium
def test_address_brings_back_a_view(written, seen):
    place = "scene=2&position=3&hide=object1,shadow2,nonsense&colours=depth"
    pressed = "$$('[data-colours=depth]').getAttribute('aria-pressed')"
    answers = chromium.ask(written, ["pixels('picture')", pressed], place=place)
    options = dict(objects=np.array([0, 1, 1, 1]), shadows=np.array([1, 0, 1, 1]))
    check_pixels(answers[0], expected(seen[1], 3, **options))
    assert answers[1] == "true"


@needs_chromium
def test_sheet_fits_a_phone_and_everything_has_a_name(written, seen):
    steps = [
        "[innerWidth, document.documentElement.scrollWidth]",
        "pixels('picture')",
        "[...document.querySelectorAll('button, input, canvas')].filter((x) =>"
        " x.offsetParent && !(x.ariaLabel || x.textContent"
        " || x.closest('label, button'))).length",
    ]
    width, answer, nameless = chromium.ask(written, steps, frame=390)
    assert width == [390, 390] and nameless == 0
    check_pixels(answer, expected(seen[0], 0))


# The command.


@pytest.fixture(scope="module")
def saved(model, params, tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    weights.save(path, model, params)
    return path


def run(*args) -> int:
    return command.main([str(arg) for arg in args])


def test_command_shows_a_folder_of_pictures(saved, tmp_path, capsys):
    folder = tmp_path / "table"
    for scene in range(2):
        for view in range(2):
            path = folder / f"scene{scene}" / f"{view}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(photographs()[scene][view]).save(path)
    out = tmp_path / "sheet.html"
    small_one = ("--size", small.SIZE, "--slots", NUM_SLOTS, "--steps", STEPS)
    assert run(saved, "--out", out, "--images", folder, *small_one) == 0
    assert (
        '"name":"scene1"' in out.read_text() and "pictures in table" in out.read_text()
    )
    assert "2 scenes" in capsys.readouterr().out
    assert run(saved, "--out", out, "--images", folder, *small_one) == 1
    assert "exists" in capsys.readouterr().err


def test_command_ray_traces_scenes_when_none_are_named(saved, tmp_path):
    out = tmp_path / "sheet.html"
    options = ("--size", small.SIZE, "--views", 2, "--scenes", 1, "--steps", 1)
    assert run(saved, "--out", out, "--slots", NUM_SLOTS, *options) == 0
    assert '"name":"Scene 1"' in out.read_text()


def test_command_takes_the_scenes_of_the_run(saved, tmp_path, monkeypatch):
    import json
    import shutil

    stage = tmp_path / "run" / "single"
    stage.mkdir(parents=True)
    shutil.copy(saved, stage / "best.safetensors")
    spec = dict(size=16, num_views=2, min_objects=1, max_objects=2, samples=1)
    config = dict(
        data=dict(scenes=spec, num_scenes=dict(test=5), seed=7),
        objective=dict(num_slots=3),
    )
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    out = tmp_path / "sheet.html"
    assert (
        run(stage / "best.safetensors", "--out", out, "--scenes", 0, "--steps", 1) == 0
    )
    found = re.search(r'"presence":\[([^]]*)\]', out.read_text())
    assert len(found[1].split(",")) == 3 and "those of the run" in out.read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--out", "sheet.png"], "end its name in .html"),
        (["--images", "nowhere"], "no such folder"),
        (["--size", "18", "--views", "1", "--scenes", "0"], "multiples of 4"),
        (["--data", "multiview_nothing"], "Build it with"),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_command_says_what_to_change(
    args, message, saved, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(saved, *args) == 1
    error = capsys.readouterr().err
    assert message in error and not (tmp_path / "sheet.html").exists()


def test_write_names_a_scene_of_the_wrong_kind(model, params, tmp_path):
    options = dict(num_slots=2)
    for scenes, message in (
        ([], "No scenes"),
        ([photographs()[0].astype(np.float32)], "Scene 0 is float32"),
        ([photographs()[0], photographs()[0][0]], "Scene 1 is uint8"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            sheet.write(tmp_path / "a.html", model, params, scenes, **options)
