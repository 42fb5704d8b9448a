"""The Blender route: planning and errors always, rendering where `bpy` is."""

import functools
import importlib.util
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time

import blender_data
import numpy as np
import pytest
import tensorflow_datasets as tfds

from ocloc_jax import records, scenes
from ocloc_jax.scenes import SceneSpec
from tfds_builders import __main__ as command_line
from tfds_builders.blender import files, layout, process
from tfds_builders.blender import source as blender
from tfds_builders.sources import DataError

HAS_BLENDER = process.VARIABLE in os.environ or importlib.util.find_spec("bpy")
needs_blender = pytest.mark.skipif(
    not HAS_BLENDER,
    reason=f"no bpy: install it in its own environment and set {process.VARIABLE}",
)
ONE_SCENE = "train=1,validation=0,test=0,test_general=1"


@pytest.fixture(scope="module")
def meshes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library") / "meshes"
    blender_data.write_meshes(folder)
    return folder


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library") / "environments"
    blender_data.write_panorama(folder / "outside" / "noon.png")
    return folder


@pytest.fixture(scope="module", autouse=True)
def end_blender():
    yield
    process.close()


@pytest.fixture
def fails(capsys, tmp_path):
    """Builds, expects status 2 and one line; returns the line."""

    def run(name, *options):
        words = [
            "build",
            name,
            *map(str, options),
            "--data_dir",
            str(tmp_path / "data"),
        ]
        assert command_line.main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        assert not list(tmp_path.rglob("dataset_info.json"))
        return line

    return run


def split(
    objects=(3, 3), num_views=2, size=48, samples=4, seed=0, scene=None, **options
):
    """Returns a source of scenes that no builder stores."""
    fields = {"size": size, "num_views": num_views, **(scene or {})}
    chosen = blender.Options(samples=samples, **options)
    return blender.make_splits(
        {"train": 9}, {"train": objects}, seed, chosen, **fields
    )["train"]


@functools.cache
def traced():
    """Returns a scene of the ray tracer, which takes long to compile."""
    spec = SceneSpec(size=48, num_views=2, min_objects=3, max_objects=4)
    return spec, scenes.render(spec, seed=3, index=1)


def check_record(record, size, num_views, max_objects):
    """Checks keys, types and that all labels agree with each other."""
    n, view = max_objects, (num_views, size, size)
    expected = {
        "image": ("uint8", (*view, 3)),
        "segment": ("uint8", view),
        "overlap": ("uint8", view),
        "masks": ("uint8", (num_views, n + 1, size, size)),
        "order": ("float32", (num_views, n)),
        "camera": ("float32", (num_views, 3)),
    }
    assert {k: (str(v.dtype), v.shape) for k, v in record.items()} == expected
    masks, segment, overlap = record["masks"], record["segment"], record["overlap"]
    assert (masks[:, n] == 255).all()
    np.testing.assert_array_equal(overlap, (masks[:, :n] >= 128).sum(axis=1))
    np.testing.assert_array_equal(segment == n, overlap == 0)
    for k in range(n):
        assert (masks[:, k][segment == k] > 0).all()
    present = record["order"][0] > -1e8
    assert (record["order"][:, ~present] == np.float32(-1e9)).all()
    assert (masks[:, :n][:, ~present] == 0).all()
    assert (masks[:, :n][:, present] > 0).any(axis=(2, 3)).all()
    return int(present.sum())


def test_meshes_are_found_in_any_layout(meshes):
    found = files.find_meshes(str(meshes)).paths
    assert [path.rsplit("/", 1)[1] for path in found] == [
        "model_normalized.obj",
        "model.obj",
        "vase.glb",
    ]


def test_fingerprint_follows_textures_but_not_the_place(meshes, tmp_path):
    same, other = tmp_path / "same", tmp_path / "other"
    for copy in (same, other):
        shutil.copytree(meshes, copy)
    (texture,) = other.rglob("texture.png")
    texture.write_bytes(texture.read_bytes() + b"\0")
    (same / "._vase.glb").write_bytes(b"what some systems leave behind")
    prints = [files.find_meshes(str(x)).fingerprint for x in (meshes, same, other)]
    assert prints[0] == prints[1] != prints[2]


def test_plan_is_the_layout_of_the_ray_tracer():
    spec, record = traced()
    plan = layout.plan(spec, seed=3, index=1)
    np.testing.assert_allclose(plan["cameras"], record["camera"], rtol=1e-5)
    assert len(plan["objects"]) == (record["order"][0] > -1e8).sum()
    azimuth, elevation, distance = np.array(plan["cameras"]).T
    assert (elevation > 0.15 * np.pi).all() and (elevation < 0.3 * np.pi).all()
    assert (distance >= 10.5).all() and (distance <= 12).all()
    rotation = np.array(plan["poses"])[:, :3, :3]
    eyes = np.array(plan["poses"])[:, :3, 3] - [0, 0, 0.35]
    np.testing.assert_allclose(rotation[..., 2] * distance[:, None], eyes, atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(rotation), 1, atol=1e-5)


def test_plan_is_a_function_of_seed_and_index():
    spec = SceneSpec(num_views=1)
    names, maps = tuple(map(str, range(50))), ("a.hdr", "b.hdr")
    plans = [layout.plan(spec, 1, index, names, maps) for index in (2, 2, 3)]
    texts = [json.dumps(plan) for plan in plans]
    assert texts[0] == texts[1] != texts[2]
    for plan in plans:
        assert len(set(plan["meshes"])) == len(plan["objects"])
    seen = {layout.plan(spec, 1, i, names, maps)["environment"] for i in range(12)}
    assert seen == set(maps)
    few = layout.plan(spec, 1, 2, ("only.obj",))
    assert few["meshes"] == ["only.obj"] * len(few["objects"])


def test_assembled_labels_count_rays():
    """Two objects in one row of two pixels, with four rays in each pixel."""
    near = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
    far = np.array([[0, 0, 1, 0], [0, 1, 0, 0]], bool)
    rays = np.zeros((1, 2, 4, 4), bool)
    rays[0, :, :2] = near, far
    visible = np.where(rays[:, 0], 1, 2 * rays[:, 1]).astype(np.uint8)
    poses = np.eye(4)[None] + [[[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 5], [0] * 4]]
    plan = {"objects": [{}, {}], "poses": poses.tolist(), "cameras": [[1, 0.5, 5]]}
    rendered = {
        "image": np.zeros((1, 2, 2, 3), np.uint8),
        "visible": visible,
        "complete": rays,
        "centre": np.array([[0, 0, 1.0], [0, 3, 1]]),
    }
    record = blender.assemble(plan, rendered, max_objects=3)
    expected = [[[255, 64], [0, 0]], [[64, 64], [0, 0]], np.zeros((2, 2))]
    np.testing.assert_array_equal(record["masks"][0, :3], expected)
    np.testing.assert_array_equal(record["segment"][0], [[0, 3], [3, 3]])
    np.testing.assert_array_equal(record["overlap"][0], [[1, 0], [0, 0]])
    np.testing.assert_array_equal(record["order"], np.float32([[-4, -5, -1e9]]))


def test_missing_and_broken_files_are_named(tmp_path, fails):
    config = ("multiview_gso", "--config", "blender_tiny")
    assert "pass their folder as --meshes" in fails(*config)
    assert "nowhere is not a folder" in fails(*config, "--meshes", tmp_path / "nowhere")
    (tmp_path / "a" / "b").mkdir(parents=True)
    line = fails(*config, "--meshes", tmp_path / "a")
    assert f"no .obj, .glb, .gltf file in {tmp_path / 'a'} or below" in line
    (tmp_path / "manual" / "meshes").mkdir(parents=True)
    line = fails(*config, "--manual_dir", tmp_path / "manual")
    assert f"file in {tmp_path / 'manual' / 'meshes'} or below" in line
    cut = tmp_path / "a" / "b" / "cut.glb"
    blender_data.write_glb(cut, *blender_data.box_mesh())
    cut.write_bytes(cut.read_bytes()[:-1])
    assert f"{cut}: not a whole .glb mesh" in fails(*config, "--meshes", cut.parent)
    empty = tmp_path / "c" / "empty.obj"
    empty.parent.mkdir()
    empty.touch()
    line = fails(*config, "--meshes", empty.parent)
    assert f"{empty}: not a whole .obj mesh" in line


def test_options_that_make_no_sense(meshes, tmp_path, fails):
    line = fails("multiview_clevr", "--config", "raytraced_tiny", "--meshes", meshes)
    assert "'raytraced_tiny' does not use Blender: ['meshes']" in line
    line = fails("multiview_gso", "--samples", 3)
    assert "'released' does not use Blender: ['samples']" in line
    config = ("multiview_clevr", "--config", "blender_tiny")
    assert "samples: 0; expected at least 1" in fails(*config, "--samples", 0)
    line = fails(*config, "--scene", "background=sky")
    assert "background='sky' is for the ray tracer" in line
    line = fails(*config, "--environments", meshes.parent / "none")
    assert "environments: " in line and "is not a folder" in line


def make_program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (f'exec {sys.executable} -S "$@"', "cannot import bpy (No module named 'bpy')"),
        ("echo no libGL.so >&2; exit 127", "Blender did not start (no libGL.so)"),
        (None, "cannot be run (No such file or directory)"),
    ],
)
def test_missing_blender_is_explained(tmp_path, fails, monkeypatch, program, cause):
    process.close()
    process.version.cache_clear()
    python = str(tmp_path / "python")
    if program:
        make_program(tmp_path / "python", program)
    monkeypatch.setenv(process.VARIABLE, python)
    line = fails("multiview_clevr", "--config", "blender_tiny")
    assert cause in line
    if "import" in cause:
        assert "pip install bpy" in line and process.VARIABLE in line


@needs_blender
def test_build_by_the_command_line(meshes, environments, tmp_path, capsys):
    """Stored scenes are those of this process, though other processes render them."""
    folders = {"meshes": str(meshes), "environments": str(environments)}
    words = ["build", "multiview_gso", "--config", "blender_tiny", "--workers", "2"]
    words += ["--num_scenes", ONE_SCENE, "--data_dir", str(tmp_path / "data")]
    inputs = [word for key in folders for word in (f"--{key}", folders[key])]
    assert command_line.main([*words, *inputs]) == 0
    (info,) = tmp_path.rglob("dataset_info.json")
    builder = tfds.builder_from_directory(info.parent)
    stored = {}
    for name, most in (("train", 6), ("test_general", 10)):
        example = builder.as_data_source(name)[0]
        stored[name] = {key: np.stack(example[key]) for key in records.KEYS}
        assert most - 3 <= check_record(stored[name], 32, 2, most) <= most
    _, rendered = split((3, 6), size=32, up_axis="z", **folders).scene(0)
    for key, value in rendered.items():
        np.testing.assert_array_equal(stored["train"][key], value)
    assert command_line.main([*words, *inputs]) == 0
    assert "already built" in capsys.readouterr().out
    # Another folder must not be answered with the dataset of this one.
    assert command_line.main([*words, "--meshes", str(meshes / "Mug")]) == 2
    assert "was built of other --meshes" in capsys.readouterr().err


@needs_blender
def test_primitives_stand_where_the_ray_tracer_puts_them():
    source = split(objects=(3, 4), seed=3)
    _, record = source.scene(1)
    check_record(record, 48, 2, 4)
    spec, expected = traced()
    assert source.spec == spec
    np.testing.assert_allclose(record["camera"], expected["camera"], rtol=1e-5)
    np.testing.assert_allclose(record["order"], expected["order"], rtol=1e-4)
    assert (record["segment"] == expected["segment"]).mean() > 0.98
    assert (record["overlap"] == expected["overlap"]).mean() > 0.98
    # Rounded edges make cubes and cylinders a little smaller.
    mine, theirs = (x["masks"][:, :4].astype(float) for x in (record, expected))
    present = record["order"][0] > -1e8
    shared = np.minimum(mine, theirs).sum(axis=(2, 3))[:, present]
    assert (shared / np.maximum(mine, theirs).sum(axis=(2, 3))[:, present] > 0.8).all()


@needs_blender
def test_scene_has_the_same_bytes_again_and_with_more_views(meshes, environments):
    folders = {"meshes": str(meshes), "environments": str(environments)}
    _, first = split(**folders).scene(2)
    process.close()  # Another Blender.
    _, again = split(num_views=3, **folders).scene(2)
    for key, value in first.items():
        np.testing.assert_array_equal(again[key][:2], value)
    _, other = split(seed=1, **folders).scene(2)
    assert (other["image"] != first["image"]).any()


@needs_blender
def test_meshes_keep_their_materials(meshes):
    """Every mesh is seen in its own colour: from texture, material file and .glb."""
    source = split(samples=8, meshes=str(meshes), scene={"object_scale": 1.3})
    found = files.find_meshes(str(meshes)).paths
    plan = layout.plan(source.spec, 0, 4, found)
    _, record = source.scene(4)
    assert sorted(plan["meshes"]) == sorted(found)
    for k, mesh in enumerate(plan["meshes"]):
        red, green, blue = record["image"][record["segment"] == k].mean(axis=0)
        if mesh.endswith("vase.glb"):
            assert blue > 1.3 * max(red, green)
        elif mesh.endswith("model_normalized.obj"):
            assert green > 1.3 * max(red, blue)
        else:  # A checker board of red and yellow.
            assert red > 1.3 * green > 1.3 * blue


@needs_blender
def test_holes_are_not_part_of_a_shape(meshes, tmp_path):
    ring = meshes / "02876657"
    _, record = split((1, 1), meshes=str(ring), scene={"object_scale": 2.0}).scene(0)
    mask = record["masks"][0, 0] >= 128
    rows, columns = np.nonzero(mask)
    middle = (rows.min() + rows.max()) // 2, (columns.min() + columns.max()) // 2
    assert not mask[middle] and record["segment"][0][middle] == 1


@needs_blender
def test_up_axis_of_obj_files(meshes):
    heights = {}
    for axis in ("y", "z"):
        source = split((1, 1), meshes=str(meshes / "Mug"), up_axis=axis)
        _, record = source.scene(0)
        heights[axis] = (record["masks"][0, 0].max(axis=1) > 0).sum()
    assert heights["z"] > 1.2 * heights["y"]


@needs_blender
@pytest.mark.parametrize("kind", ["no_faces.obj", "point.obj", "nonsense.glb"])
def test_mesh_that_blender_cannot_use_is_named(tmp_path, kind):
    path = tmp_path / kind
    if kind == "no_faces.obj":
        path.write_text("v 0 0 0\nv 1 0 0\n")
    elif kind == "point.obj":
        path.write_text("v 1 1 1\n" * 3 + "f 1 2 3\n")
    else:
        path.write_bytes(b"glTF" + np.array([2, 20], "<u4").tobytes() + b"\0" * 8)
    with pytest.raises(DataError, match=str(path)) as caught:
        split((1, 1), meshes=str(tmp_path)).scene(0)
    assert "\n" not in str(caught.value)


@needs_blender
def test_environment_that_is_no_picture_is_named(tmp_path):
    (tmp_path / "sky.hdr").write_bytes(b"#?RADIANCE nothing")
    with pytest.raises(DataError, match=f"{tmp_path / 'sky.hdr'}: not an environment"):
        split((1, 1), environments=str(tmp_path)).scene(0)


@needs_blender
def test_death_of_blender_is_reported_and_survived():
    source = split((1, 1), num_views=1, size=16)
    source.scene(0)
    process._running._process.kill()
    process._running._process.wait()
    check_record(source.scene(0)[1], 16, 1, 1)
    running = process._blender()
    running._process.kill()
    with pytest.raises(DataError, match="Blender died of these meshes: m.obj"):
        running.render({"meshes": ["m.obj", "m.obj"]})


@needs_blender
def test_blender_ends_with_a_killed_build():
    """Neither the process nor its files outlive the process that started it."""
    code = (
        "from tfds_builders.blender import process; process.version()\n"
        "print(process._running._process.pid, process._running._folder.name)\n"
        "import sys; sys.stdout.flush(); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child, folder = parent.stdout.readline().split()
    assert pathlib.Path(folder).exists()
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 20
    while pathlib.Path(folder).exists() or is_running(int(child)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    # A process that nobody has asked about its end counts as ended.
    status = pathlib.Path(f"/proc/{number}/stat")
    return not status.exists() or status.read_text().rsplit(")")[1].split()[0] != "Z"
