"""Puts the objects of a scene into Blender: imported meshes or CLEVR's primitives."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import addon_utils
import bmesh
import bpy
import mathutils
import numpy as np

BEVEL = 0.06  # Rounded edges of primitives, as a share of their radius.
# Where data sets keep the textures of a mesh if not where its material file says.
_TEXTURE_FOLDERS = (".", "textures", "images", "../materials/textures")
_TEXTURE_FOLDERS += ("../textures", "../images", "..")


class MeshError(ValueError):
    """A mesh file that is of no use; the message names it."""


class Model:
    """One object of the scene, perhaps of several Blender objects."""

    def __init__(self, parts: Sequence[Any]):
        """Makes an object of parts that already stand in the scene."""
        self.parts = list(parts)

    def centre(self) -> list[float]:
        """Middle of the bounding box."""
        low, high = _bounds(_points(self.parts))
        return ((low + high) / 2).tolist()


def add(thing: Mapping[str, Any], mesh: str | None, up: str, shadows: bool) -> Model:
    """Adds an object to the scene.

    Args:
      thing: `position`, `radius`, `yaw`, `kind`, `colour` and `metal`.
      mesh: File that takes the place of the primitive `kind`.
      up: Vertical axis of .obj files, `y` or `z`.
      shadows: Whether the object casts shadows.
    """
    parts = load(mesh, up) if mesh else [_primitive(thing)]
    _stand(parts, thing, mesh)
    for part in parts:
        part.visible_shadow = shadows
        if not any(slot.material for slot in part.material_slots):
            part.data.materials.clear()
            part.data.materials.append(_material(thing["colour"], thing["metal"]))
    return Model(parts)


def load(path: str, up: str) -> list[Any]:
    """Imports a mesh file with its materials and returns its parts."""
    before = set(bpy.data.objects)
    try:
        _import(path, up)
    except Exception as error:  # Importers raise whatever goes wrong in them.
        cause = " ".join(str(error).split())
        raise MeshError(f"{path}: Blender cannot read it ({cause})") from error
    new = [thing for thing in bpy.data.objects if thing not in before]
    bpy.context.view_layer.update()
    # A parent moves its children: note where all stand before parting them.
    places = [(thing, thing.matrix_world.copy()) for thing in new]
    for thing, place in places:
        thing.animation_data_clear()
        thing.parent, thing.matrix_world = None, place
    parts = [t for t in new if t.type == "MESH" and len(t.data.polygons)]
    for thing in set(new) - set(parts):
        bpy.data.objects.remove(thing)
    if not parts:
        raise MeshError(f"{path}: no faces in it")
    _find_textures(pathlib.Path(path).parent)
    return parts


def _import(path: str, up: str) -> None:
    if path.lower().endswith(".obj"):
        axes = {"y": ("NEGATIVE_Z", "Y"), "z": ("Y", "Z")}[up]
        bpy.ops.wm.obj_import(filepath=path, forward_axis=axes[0], up_axis=axes[1])
    else:
        addon_utils.enable("io_scene_gltf2")
        bpy.ops.import_scene.gltf(filepath=path)


def _find_textures(folder: pathlib.Path) -> None:
    """Looks for textures that do not lie where the material file says."""
    for image in bpy.data.images:
        named = image.filepath and not image.packed_file
        if not named or pathlib.Path(bpy.path.abspath(image.filepath)).exists():
            continue
        name = pathlib.PurePath(image.filepath.replace("\\", "/")).name
        for place in _TEXTURE_FOLDERS:
            if (folder / place / name).is_file():
                image.source = "FILE"
                image.filepath = str((folder / place / name).resolve())
                image.reload()
                break


def _stand(parts: Sequence[Any], thing: Mapping[str, Any], mesh: str | None) -> None:
    """Scales parts into the upright cylinder that the layout keeps free for them.

    The cylinder has the radius `radius` and twice that height, and stands on the
    ground.
    """
    bpy.context.view_layer.update()
    points = _points(parts)
    low, high = _bounds(points)
    middle = (low + high) / 2
    reach = np.hypot(*(points - middle)[:, :2].T).max()
    extent = max(reach, (high - low)[2] / 2)
    if not np.isfinite(extent) or extent <= 0:
        raise MeshError(f"{mesh}: its vertices span no volume")
    # Primitives have their size already: a cube fills less than its cylinder.
    scale = thing["radius"] / extent if mesh else 1.0
    x, y = thing["position"]
    place = (
        mathutils.Matrix.Translation((x, y, 0))
        @ mathutils.Matrix.Rotation(thing["yaw"], 4, "Z")
        @ mathutils.Matrix.Scale(scale, 4)
        @ mathutils.Matrix.Translation((-middle[0], -middle[1], -low[2]))
    )
    for part in parts:
        part.matrix_world = place @ part.matrix_world
    bpy.context.view_layer.update()


def _points(parts: Sequence[Any]) -> np.ndarray:
    """World coordinates of all vertices, [points, 3]."""
    clouds = []
    for part in parts:
        cloud = np.empty(3 * len(part.data.vertices), np.float32)
        part.data.vertices.foreach_get("co", cloud)
        matrix = np.array(part.matrix_world)
        clouds.append(cloud.reshape(-1, 3) @ matrix[:3, :3].T + matrix[:3, 3])
    return np.concatenate(clouds)


def _bounds(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return points.min(axis=0), points.max(axis=0)


def _primitive(thing: Mapping[str, Any]) -> Any:
    kind, radius = thing["kind"], thing["radius"]
    shape, mesh = bmesh.new(), bpy.data.meshes.new(kind)
    if kind == "cube":
        bmesh.ops.create_cube(shape, size=radius * 2**0.5)
    elif kind == "sphere":
        bmesh.ops.create_uvsphere(shape, u_segments=64, v_segments=32, radius=radius)
    else:
        bmesh.ops.create_cone(
            shape,
            cap_ends=True,
            segments=64,
            radius1=radius,
            radius2=radius,
            depth=2 * radius,
        )
    for face in shape.faces:
        face.smooth = True
    shape.to_mesh(mesh)
    shape.free()
    part = bpy.data.objects.new(kind, mesh)
    bpy.context.scene.collection.objects.link(part)
    if kind != "sphere":
        _bevel(part, BEVEL * radius)
    return part


def _bevel(part: Any, width: float) -> None:
    bevel = part.modifiers.new("bevel", "BEVEL")
    bevel.width, bevel.segments, bevel.harden_normals = width, 4, True


def _material(colour: Sequence[float], metal: bool) -> Any:
    """CLEVR's metal or rubber."""
    material = bpy.data.materials.new("metal" if metal else "rubber")
    material.use_nodes = True
    inputs = material.node_tree.nodes["Principled BSDF"].inputs
    inputs["Base Color"].default_value = (*colour, 1.0)
    inputs["Metallic"].default_value = float(metal)
    inputs["Roughness"].default_value = 0.2 if metal else 0.7
    return material
