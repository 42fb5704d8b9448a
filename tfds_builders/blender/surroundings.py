"""The ground, the light and what is behind: an environment map, or lamps."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import bpy
import mathutils
import numpy as np

GROUND = 200.0  # Half width: its edge stays out of view.
# Height above the ground at which a panorama counts as taken.
_TRIPOD = 6.0
_LAMP_SPREAD = 2 * math.atan(0.16)  # As soft as the ray tracer's shadows.
_BRIGHTEST_GROUND = 0.9


def add(plan: Mapping[str, Any]) -> Any:
    """Adds light and ground to the scene; returns the ground."""
    ground = _plane()
    if plan["environment"]:
        _add_environment(ground, plan["environment"], plan["turn"])
    else:
        _add_lamps(ground, plan["lamps"])
    return ground


def _plane() -> Any:
    mesh = bpy.data.meshes.new("ground")
    corners = [(x, y, 0) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    mesh.from_pydata(
        [tuple(GROUND * c for c in corner) for corner in corners], [], [(0, 1, 2, 3)]
    )
    material = bpy.data.materials.new("ground")
    material.use_nodes = True
    inputs = material.node_tree.nodes["Principled BSDF"].inputs
    inputs["Base Color"].default_value = (0.3, 0.3, 0.3, 1.0)
    inputs["Roughness"].default_value = 0.9
    inputs["Specular IOR Level"].default_value = 0.1
    mesh.materials.append(material)
    ground = bpy.data.objects.new("ground", mesh)
    bpy.context.scene.collection.objects.link(ground)
    return ground


def _world() -> Any:
    world = bpy.data.worlds.new("world")
    world.use_nodes = True
    # Fine enough to find the sun; left to itself, Cycles takes two seconds a scene.
    world.cycles.sampling_method = "MANUAL"
    world.cycles.sample_map_resolution = 1024
    bpy.context.scene.world = world
    return world.node_tree


def _add_lamps(ground: Any, lamps: Sequence[Sequence[float]]) -> None:
    """Key and fill lamp of the ray tracer, under a grey sky that metal can mirror."""
    for *toward, strength in lamps:
        data = bpy.data.lights.new("lamp", "SUN")
        data.energy, data.angle = 3.4 * strength, _LAMP_SPREAD
        lamp = bpy.data.objects.new("lamp", data)
        lamp.rotation_euler = (
            mathutils.Vector(toward).to_track_quat("Z", "Y").to_euler()
        )
        bpy.context.scene.collection.objects.link(lamp)
    tree = _world()
    place, split = _nodes(tree, "ShaderNodeTexCoord", "ShaderNodeSeparateXYZ")
    (ramp,) = _nodes(tree, "ShaderNodeValToRGB")
    ramp.color_ramp.elements[0].color = (0.25, 0.25, 0.25, 1)
    ramp.color_ramp.elements[1].color = (0.7, 0.7, 0.7, 1)
    tree.links.new(place.outputs["Generated"], split.inputs[0])
    tree.links.new(split.outputs["Z"], ramp.inputs[0])
    tree.links.new(ramp.outputs["Color"], tree.nodes["Background"].inputs["Color"])
    tree.nodes["Background"].inputs["Strength"].default_value = 0.5


def _nodes(tree: Any, *kinds: str) -> list[Any]:
    return [tree.nodes.new(kind) for kind in kinds]


def _add_environment(ground: Any, path: str, turn: float) -> None:
    """Lights the scene by a panorama and lays its lower half out on the ground.

    The ground reflects as much as makes it look like the panorama where no shadow
    falls. All panoramas are brought to one exposure.
    """
    try:
        panorama = bpy.data.images.load(path)
        light, grey = measure(panorama)
    except (RuntimeError, ValueError) as error:
        cause = " ".join(str(error).split())
        raise ValueError(f"{path}: not an environment map ({cause})") from error
    tree = _world()
    (place,) = _nodes(tree, "ShaderNodeTexCoord")
    texture = _panorama(tree, panorama, turn, place.outputs["Generated"])
    back = tree.nodes["Background"]
    tree.links.new(texture.outputs["Color"], back.inputs["Color"])
    back.inputs["Strength"].default_value = math.pi / grey
    _paint(ground.data.materials[0].node_tree, panorama, turn, math.pi / light)


def measure(panorama: Any) -> tuple[np.ndarray, float]:
    """Light that falls on level ground from a panorama: by channel, and on average."""
    width, height = panorama.size
    if not panorama.has_data or min(width, height) < 2:
        raise ValueError("no picture in it")
    pixels = np.empty(width * height * panorama.channels, np.float32)
    panorama.pixels.foreach_get(pixels)
    pixels = pixels.reshape(height, width, -1)[..., :3]  # The lowest row is first.
    latitude = ((np.arange(height) + 0.5) / height - 0.5) * np.pi
    weight = np.maximum(np.sin(latitude), 0) * np.cos(latitude)
    ring = np.nan_to_num(pixels).mean(axis=1)
    light = (ring * weight[:, None]).sum(axis=0) * (np.pi / height) * 2 * np.pi
    if not light.mean() > 0:
        raise ValueError("its upper half is black")
    return np.maximum(light, 1e-3 * light.mean()), float(light.mean())


def _panorama(tree: Any, panorama: Any, turn: float, direction: Any) -> Any:
    mapping, texture = _nodes(tree, "ShaderNodeMapping", "ShaderNodeTexEnvironment")
    mapping.inputs["Rotation"].default_value[2] = turn
    texture.image = panorama
    tree.links.new(direction, mapping.inputs["Vector"])
    tree.links.new(mapping.outputs["Vector"], texture.inputs["Vector"])
    return texture


def _paint(tree: Any, panorama: Any, turn: float, share: np.ndarray) -> None:
    """Colours the ground as the panorama in the direction of each of its points."""
    place, drop = _nodes(tree, "ShaderNodeNewGeometry", "ShaderNodeVectorMath")
    drop.operation = "SUBTRACT"
    drop.inputs[1].default_value = (0, 0, _TRIPOD)
    tree.links.new(place.outputs["Position"], drop.inputs[0])
    texture = _panorama(tree, panorama, turn, drop.outputs[0])
    scale, limit = _nodes(tree, "ShaderNodeVectorMath", "ShaderNodeVectorMath")
    scale.operation, limit.operation = "MULTIPLY", "MINIMUM"
    scale.inputs[1].default_value = share
    limit.inputs[1].default_value = (_BRIGHTEST_GROUND,) * 3
    tree.links.new(texture.outputs["Color"], scale.inputs[0])
    tree.links.new(scale.outputs[0], limit.inputs[0])
    colour = tree.nodes["Principled BSDF"].inputs["Base Color"]
    tree.links.new(limit.outputs[0], colour)
