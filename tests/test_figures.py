"""Figures on scenes made by hand, whose masks, orders and shadows are known."""

import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from PIL import Image

from ocloc_jax import figures
from ocloc_jax.figures import __main__ as command
from ocloc_jax.figures import files, grid, parts, plots
from ocloc_jax.models.compose import Scene

RED, GREEN = (1.0, -1.0, -1.0), (-1.0, 1.0, -1.0)
SIDE = 16
ZOOM = 6  # 16 pixels become 96


def squares(*, num_views: int = 2, num_slots: int = 2, shadows: bool = True) -> Scene:
    """Slot 0 is a red square, slot 1 a green one that covers a part of it."""
    shape = np.zeros((num_views, num_slots, SIDE, SIDE), np.float32)
    shape[:, 0, 2:8, 2:8] = 1
    shape[:, 1:2, 5:12, 5:14] = 1
    appearance = np.full((*shape.shape, 3), 5.0, np.float32)  # out of range on purpose
    appearance[:, 0] = RED
    appearance[:, 1:2] = GREEN
    masks = shape.copy()
    if num_slots > 1:
        masks[:, 0] *= 1 - shape[:, 1]
    background = np.zeros((num_views, SIDE, SIDE, 3), np.float32)
    recon = np.where(masks.any(axis=1)[..., None], 0.5, background)
    order = np.broadcast_to(np.arange(num_slots), (num_views, num_slots))
    fields = {
        "recon": recon,
        "mask_bck": 1 - masks.sum(axis=1),
        "mask_obj": masks,
        "shape": shape,
        "shape_imp": shape,
        "shape_logit": shape,
        "appearance": appearance,
        "background": background - 0.5,
        "background_imp": background,
        "order": order,
    }
    if shadows:
        fields["shadow_shape"] = np.roll(shape, 2, axis=-1)
        fields["shadow_light"] = np.full_like(shape, 0.25)
    return Scene(**{k: jnp.asarray(v, jnp.float32) for k, v in fields.items()})


def images(num_views: int = 2) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (num_views, SIDE, SIDE, 3)).astype(np.float32)


def columns(scene: Scene, presence: list[float]) -> dict[str, parts.Column]:
    views = images(scene.recon.shape[0])
    drawn = parts.panels(views, scene, np.float32(presence))
    listed = [column for panel in drawn for column in panel.columns]
    return {column.label.text.replace("\n", " "): column for column in listed}


def find(picture: np.ndarray, tile: np.ndarray) -> list[tuple[int, int]]:
    """Rows and columns of the upper left corners where a tile lies in a picture."""
    tile = grid.enlarge(tile)
    height, width = tile.shape[:2]
    room = picture.shape[0] - height + 1, picture.shape[1] - width + 1
    places = np.ones(room, bool)
    for y, x in np.random.default_rng(0).integers(0, (height, width), (40, 2)):
        same = picture[y : y + room[0], x : x + room[1]] == tile[y, x]
        places &= same.all(axis=-1)
    corners = [(int(y), int(x)) for y, x in np.argwhere(places)]
    area = [picture[y : y + height, x : x + width] for y, x in corners]
    pairs = zip(corners, area, strict=True)
    return [corner for corner, part in pairs if (part == tile).all()]


def test_segmentation_has_the_colour_of_the_strongest_layer():
    scene = squares()
    colours = grid.object_colours(2)
    picture = parts.segmentation(scene)
    expected = np.full((2, SIDE, SIDE, 3), grid.BACKGROUND_COLOUR, np.uint8)
    expected[:, 2:8, 2:8] = colours[0]
    expected[:, 5:12, 5:14] = colours[1]  # in front
    np.testing.assert_array_equal(picture, expected)


def test_background_wins_only_if_strongest():
    scene = squares(num_views=1)
    scene = scene.replace(
        mask_bck=jnp.full((1, SIDE, SIDE), 0.4),
        mask_obj=jnp.stack(
            [jnp.full((1, SIDE, SIDE), 0.4), jnp.full((1, SIDE, SIDE), 0.2)], axis=1
        ),
    )
    picture = parts.segmentation(scene)
    assert (picture == grid.object_colours(2)[0]).all()
    picture = parts.segmentation(scene.replace(mask_bck=scene.mask_bck + 0.1))
    assert (picture == np.uint8(grid.BACKGROUND_COLOUR)).all()


def test_object_has_one_colour_in_labels_and_all_views():
    drawn = columns(squares(), [0.9, 0.8])
    colours = [tuple(colour) for colour in grid.object_colours(2).tolist()]
    assert drawn["object 1 presence 0.90"].label.colour == colours[0]
    assert drawn["shadow of object 1"].label.colour == colours[0]
    assert drawn["object 2 presence 0.80"].label.colour == colours[1]
    picture = figures.decomposition(images(), squares(), np.float32([0.9, 0.8]))
    pixels = np.asarray(squares().mask_obj.sum(axis=(0, 2, 3))) * ZOOM**2
    bars = 2 * 6 * SIDE * ZOOM  # above the object and above its shadow
    for k in range(2):
        drawn_pixels = (picture == grid.object_colours(2)[k]).all(axis=-1).sum()
        assert drawn_pixels == pixels[k] + bars


def test_tiles_stand_in_rows_of_views_and_columns_in_order():
    views, presence = images(), np.float32([0.9, 0.9])
    picture = figures.decomposition(views, squares(), presence)
    places = [find(picture, grid.to_rgb(view)) for view in views]
    assert [len(place) for place in places] == [1, 1]
    (top, left), (below, left_below) = places[0][0], places[1][0]
    assert left == left_below
    assert below == top + SIDE * ZOOM + grid.GAP
    drawn = columns(squares(), [0.9, 0.9])
    step = SIDE * ZOOM + grid.GAP
    for i, name in enumerate(["reconstruction", "segmentation", "background alone"]):
        assert (top, left + (i + 1) * step) in find(picture, drawn[name].tiles[0])
    shadows = [find(picture, drawn[f"shadow of object {k}"].tiles[0]) for k in (1, 2)]
    assert [len(place) for place in shadows] == [2, 2]  # the same in both views
    assert shadows[1][0][1] == shadows[0][0][1] + step


def test_complete_object_lies_on_a_checkerboard():
    tile = columns(squares(), [1.0, 0.5])["object 1 presence 1.00"].tiles[0]
    red = (tile == [255, 0, 0]).all(axis=-1)
    expected = grid.enlarge(np.asarray(squares().shape[0, 0]) == 1)
    stamped = np.zeros_like(expected)
    stamped[:20, :20] = True
    np.testing.assert_array_equal(red | stamped, expected | stamped)  # also where hid
    board = {tuple(colour) for colour in tile[~expected & ~stamped]}
    assert board == {(255, 255, 255), (204, 204, 204)}


def test_presence_makes_objects_transparent():
    tile = columns(squares(), [1.0, 0.5])["object 2 presence 0.50"].tiles[0]
    inside = tile[5 * ZOOM : 12 * ZOOM, 5 * ZOOM : 14 * ZOOM].reshape(-1, 3)
    assert {tuple(colour) for colour in inside.tolist()} == {
        (128, 255, 128),
        (102, 230, 102),
    }


def test_shadow_darkens_white():
    tile = columns(squares(), [0.8, 1.0])["shadow of object 1"].tiles[0]
    expected = np.full((SIDE, SIDE, 3), 255, np.uint8)
    expected[2:8, 4:10] = 102  # 1 - 0.8 * (1 - 0.25) of the light
    np.testing.assert_array_equal(tile, expected)


def test_absent_slot_is_faded():
    present, absent = (list(columns(squares(), [p, 0.9]).values()) for p in (0.9, 0.4))
    for i, name in [(5, "object 1"), (7, "shadow of\nobject 1")]:
        assert present[i].label.text.startswith(name)
        assert absent[i].label.faded and not present[i].label.faded
        for tile in absent[i].tiles:
            assert tile.min() >= 0.7 * 255 - 1
        assert np.min(present[i].tiles) < 0.7 * 255 - 1
    assert not absent[6].label.faded
    for presence in (0.5, np.float32(0.49999), float("nan")):
        label = list(columns(squares(), [presence, 0.9]).values())[5].label
        assert label.faded == (presence != 0.5)


def test_depth_ranks_follow_the_order_of_present_objects():
    order = np.float32([[0.3, -1.0, 7.0, 2.0], [5.0, 5.0, 1.0, 9.0]])
    everything = parts.depth_ranks(order, np.float32([0.9, 0.9, 0.9, 0.5]))
    np.testing.assert_array_equal(everything, [[3, 4, 1, 2], [2, 2, 4, 1]])
    some = parts.depth_ranks(order, np.float32([0.9, 0.9, 0.9, 0.2]))
    np.testing.assert_array_equal(some, [[2, 3, 1, 0], [1, 1, 3, 0]])


def test_printed_numbers_are_those_of_the_order():
    scene = squares().replace(order=jnp.float32([[-3.0, 2.0], [0.5, 0.1]]))
    drawn = list(columns(scene, [0.9, 0.9]).values())[5:7]
    blank = np.full((96, 96, 3), 255, np.uint8)
    number = {n: grid.stamp(blank, str(n))[:16, :12] for n in (1, 2)}
    assert (number[1] != number[2]).any()
    printed = [[2, 1], [1, 2]]
    for m, k in np.ndindex(2, 2):
        corner = drawn[k].tiles[m][:16, :12]
        np.testing.assert_array_equal(corner, number[printed[m][k]])


@pytest.mark.parametrize("shadows", [True, False])
@pytest.mark.parametrize(("num_views", "num_slots"), [(1, 1), (8, 11)])
def test_any_number_of_views_and_slots(num_views: int, num_slots: int, shadows: bool):
    scene = squares(num_views=num_views, num_slots=num_slots, shadows=shadows)
    presence = np.linspace(1, 0, num_slots, dtype=np.float32)
    views = images(num_views)
    picture = figures.decomposition(views, scene, presence)
    assert picture.dtype == np.uint8
    step = SIDE * ZOOM + grid.GAP
    num_columns = 5 + 2 * num_slots if shadows else 4 + num_slots
    assert num_columns * step < picture.shape[1] < num_columns * step + 120
    assert num_views * step < picture.shape[0] < num_views * step + 140
    again = figures.decomposition(jnp.asarray(views), scene, jnp.asarray(presence))
    np.testing.assert_array_equal(picture, again)
    words = " ".join(columns(scene, presence.tolist()))
    assert ("shadow" in words) == shadows


def test_output_of_a_model_can_be_drawn():
    model = small.model(shadows=False)
    noise = small.noise(batch=(), num_views=2, num_slots=3, training=False)
    views = small.images(batch=(), num_views=2)
    params = {"params": small.params(model)}
    outputs = jax.jit(model.apply)(params, views, noise)
    presence = outputs.latents.presence
    picture = figures.decomposition(views, outputs.scene, presence)
    assert len(find(picture, grid.to_rgb(outputs.scene.recon[1]))) == 1


def test_scene_that_does_not_fit_is_named():
    batched = jax.tree.map(lambda x: x[None], squares())
    with pytest.raises(ValueError, match=r"recon .*\(1, 2, 16, 16, 3\).* batch axis"):
        figures.decomposition(images(), batched, np.float32([1, 1]))
    with pytest.raises(ValueError, match=r"3 presences .*mask_obj is \(2, 3, 16, 16\)"):
        figures.decomposition(images(), squares(), np.float32([1, 1, 1]))


def test_colours_are_distinct_and_do_not_depend_on_their_number():
    colours = grid.object_colours(40).astype(int)
    np.testing.assert_array_equal(grid.object_colours(5), colours[:5])
    layers = np.concatenate([[grid.BACKGROUND_COLOUR], colours])
    distance = np.abs(layers[:, None] - layers).sum(axis=-1)
    distance[np.diag_indices(len(layers))] = 999
    assert distance[:13, :13].min() > 70
    assert distance.min() > 0


def test_rgb_clips_and_shows_nan():
    image = np.float32([[-7, 0, 7], [1, -1, 0.5], [0, float("nan"), 0]])
    expected = [[0, 128, 255], [255, 0, 191], grid.NAN_COLOUR]
    np.testing.assert_array_equal(grid.to_rgb(image), expected)
    with pytest.raises(ValueError, match="int32"):
        grid.to_rgb(np.zeros((2, 2, 3), np.int32))


def test_strip_places_images_and_leaves_gaps():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 255, (2, 40, 60, 3), dtype=np.uint8)
    picture = figures.strip([[a, None], [b, a]], ["first", ""], ["left", "right"])
    step_down, step_right = 80 + grid.GAP, 120 + grid.GAP
    (y, x) = find(picture, a)[0]
    assert find(picture, a) == [(y, x), (y + step_down, x + step_right)]
    assert find(picture, b) == [(y + step_down, x)]
    empty = picture[y : y + 80, x + step_right : x + step_right + 120]
    assert (empty == 255).all()
    assert (picture[:y, x:] < 128).any() and (picture[y : y + 80, :x] < 128).any()


def test_text_stays_inside_its_column():
    tile = np.zeros((96, 96, 3), np.uint8)
    long = "seven words that need more than one line"
    plain = figures.strip([[tile, tile]], [""], ["", "b"])
    wrapped = figures.strip([[tile, tile]], [""], [long + " " + "x" * 50, "b"])
    assert wrapped.shape[1] == plain.shape[1]
    assert wrapped.shape[0] > plain.shape[0]
    between = wrapped[:-102, 4 + 96 : 4 + 96 + grid.GAP]
    assert (between > 240).all()  # but for the soft edge of a letter


@pytest.mark.parametrize(
    ("rows", "row_labels", "column_labels", "message"),
    [
        ([], [], ["a"], "at least one row"),
        ([[None]], ["a", "b"], ["c"], "1 rows but 2 row labels"),
        ([[None, None], [None]], ["a", "b"], ["c", "d"], "Row 1 has 1 images"),
        (
            [[np.zeros((8, 8, 3)), np.zeros((9, 8, 3))]],
            ["a"],
            ["b", "c"],
            "share a size",
        ),
    ],
)
def test_strip_names_what_does_not_fit(rows, row_labels, column_labels, message):
    with pytest.raises(ValueError, match=message):
        figures.strip(rows, row_labels, column_labels)


ROWS = [
    {"time": 0.1},
    {"step": 30, "loss": 2.0},
    {"step": 10, "loss": 4.0, "ari": None},
    {"step": 20, "loss": float("nan")},
    {"step": 20, "ari": 0.5},
]


def test_series_are_sorted_and_keep_gaps():
    steps, values = plots.series(ROWS, "loss")
    np.testing.assert_array_equal(steps, [10, 20, 30])
    np.testing.assert_array_equal(values, [4, np.nan, 2])
    steps, values = plots.series(ROWS, "ari")
    np.testing.assert_array_equal(values, [np.nan, 0.5])
    assert plots.series(ROWS, "other")[0].shape == (0,)
    with pytest.raises(ValueError, match="'loss' is 'high', not a number"):
        plots.series([{"step": 1, "loss": "high"}], "loss")


def test_curves_draw_points_lines_and_nothing():
    text = "\n".join(json.dumps(row) for row in ROWS)  # nan survives the file
    rows = [json.loads(line) for line in text.splitlines()]
    picture = figures.curves(rows, ["loss"])
    assert picture.dtype == np.uint8 and picture.shape[-1] == 3
    blue = (picture == [0x1F, 0x5F, 0xA8]).all(axis=-1)
    assert blue.sum() > 20  # points left and right of the nan
    one = figures.curves([{"step": 7, "loss": 1.0}], ["loss"])
    assert (one == [0x1F, 0x5F, 0xA8]).all(axis=-1).sum() > 10
    empty = figures.curves([], ["loss"])
    assert not (empty == [0x1F, 0x5F, 0xA8]).all(axis=-1).any()
    many = figures.curves(rows, ["loss", "ari", "other", "time"])
    assert many.shape == (2 * picture.shape[0], 3 * picture.shape[1], 3)
    np.testing.assert_array_equal(picture, figures.curves(rows, ["loss"]))
    with pytest.raises(ValueError, match="no keys"):
        figures.curves(rows, [])


def test_lines_have_their_own_colours_and_range():
    panels = {"a": {"up": [0.0, 1.0], "gap": [None, 0.5]}, "b": {"none": [None, None]}}
    picture = figures.lines([1, 2], panels, "number of views")
    blue, orange = (
        (picture == c).all(axis=-1) for c in ([31, 95, 168], [217, 130, 43])
    )
    left = picture.shape[1] // 2
    assert blue[:, :left].sum() > 100 and orange[:, :left].sum() > 10
    assert not blue[:, left:].any()
    low = figures.lines([1, 2], {"a": {"low": [0.0, 0.1]}}, "x")
    fixed = figures.lines([1, 2], {"a": {"low": [0.0, 0.1]}}, "x", shares=["a"])
    middle = slice(len(low) // 3, 3 * len(low) // 5)  # below the legend
    drawn = [(p[middle] == [31, 95, 168]).all(axis=-1).any() for p in (low, fixed)]
    assert drawn == [True, False]


def test_curves_draw_every_seed_and_their_mean():
    seeds = [
        {"step": step, "seed": seed, "loss": seed + step}
        for step in (1, 2)
        for seed in (4, 5)
    ]
    mean = [{"step": step, "loss": 4.5 + step} for step in (1, 2)]
    picture = figures.curves([*seeds, *mean], ["loss", "seed"])
    for colour in ([0x1F, 0x77, 0xB4], [0xFF, 0x7F, 0x0E], [0, 0, 0]):
        close = np.abs(picture.astype(int) - colour).max(axis=-1) < 40
        assert close.sum() > 50
    assert picture.shape == figures.curves(mean, ["loss"]).shape  # no panel of seeds


def test_curves_need_no_display_and_import_matplotlib_late():
    code = (
        "import sys; from ocloc_jax import figures; "
        "assert 'matplotlib' not in sys.modules; "
        "figures.curves([{'step': 1, 'a': 2}], ['a']); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    root = pathlib.Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_save_writes_what_was_drawn(tmp_path: pathlib.Path):
    picture = grid.to_rgb(images()[0])
    path = tmp_path / "deep" / "er" / "a.png"
    figures.save(path, picture)
    np.testing.assert_array_equal(np.array(Image.open(path)), picture)
    assert path.read_bytes() == figures.encode(picture)
    figures.save(str(path), picture[:4])
    assert Image.open(path).size == (16, 4)
    assert [p.name for p in path.parent.iterdir()] == ["a.png"]


def test_failed_save_keeps_the_old_picture(tmp_path: pathlib.Path, monkeypatch):
    picture = grid.to_rgb(images()[0])
    path = tmp_path / "a.png"
    figures.save(path, picture)
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        figures.save(path, picture[:4])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    with pytest.raises(ValueError, match="end the name in .png"):
        figures.save(tmp_path / "a.jpg", picture)


def test_command_draws_random_weights(tmp_path: pathlib.Path, monkeypatch, capsys):
    monkeypatch.setattr(command, "Ocloc", small.model)
    out = tmp_path / "new" / "random.png"
    sizes = ["--views", "2", "--slots", "3", "--size", "16"]
    assert command.main(["random", str(out), *sizes]) == 0
    width, height = Image.open(out).size
    assert f"{width} x {height}" in capsys.readouterr().out
    assert width > 11 * 100 and height > 2 * 100


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("a.jpg", [], "end the name in .png"),
        ("a.png", ["--slots", "0"], "0 slots"),
        ("a.png", ["--views", "0"], "num_views=0"),
        ("a.png", ["--size", "20"], "multiples of 8"),
    ],
)
def test_command_explains_what_it_cannot_draw(out, options, message, tmp_path, capsys):
    assert command.main(["random", str(tmp_path / out), *options]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
