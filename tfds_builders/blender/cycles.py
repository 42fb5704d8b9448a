"""Renders pictures and labels of the current scene with Cycles."""

import pathlib
from collections.abc import Sequence
from typing import Any

import bpy
import mathutils
import numpy as np

# Backends of GPU rendering, best first.
_BACKENDS = ("OPTIX", "CUDA", "HIP", "ONEAPI", "METAL")
# Surfaces that a ray may pass to see all objects behind each other.
_MOST_SURFACES = 1024
_CHANNELS = 3


class Renderer:
    """Cycles with one camera; one file is written over and over."""

    def __init__(self, folder: str, field_of_view: float, threads: int):
        """Adds the camera to the scene.

        Args:
          folder: Where pictures are kept for a moment.
          field_of_view: Full angle of the square picture, radians.
          threads: Processor threads; 0 uses all.
        """
        self.path = pathlib.Path(folder) / "view.png"
        self.scene = scene = bpy.context.scene
        data = bpy.data.cameras.new("camera")
        data.angle, data.clip_end = field_of_view, 1000.0
        self.camera = bpy.data.objects.new("camera", data)
        scene.collection.objects.link(self.camera)
        scene.camera, scene.render.engine = self.camera, "CYCLES"
        # Meshes and textures stay with Cycles from one view to the next.
        scene.render.use_persistent_data = True
        scene.render.threads_mode = "FIXED" if threads else "AUTO"
        scene.render.threads = threads or scene.render.threads
        settings = scene.render.image_settings
        settings.file_format, settings.color_mode = "PNG", "RGB"
        settings.color_depth, settings.compression = "8", 0
        scene.render.filepath, scene.render.dither_intensity = str(self.path), 0.0
        scene.cycles.use_adaptive_sampling = False

    def use(self, device: str) -> None:
        """Renders on the processor (`cpu`) or on all GPUs (`gpu`)."""
        if device == "gpu":
            _enable_gpus()
        self.scene.cycles.device = device.upper()

    def picture(
        self, poses: Sequence[Any], size: int, samples: int, noise: int
    ) -> np.ndarray:
        """Returns uint8 [v, size, size, 3]."""
        cycles = self.scene.cycles
        # The denoiser does not give the same bytes twice, even on one thread.
        cycles.samples, cycles.use_denoising = samples, False
        cycles.max_bounces, cycles.diffuse_bounces = 4, 2
        # Rare bright paths would need thousands of samples to even out.
        cycles.caustics_reflective = cycles.caustics_refractive = False
        cycles.sample_clamp_indirect, cycles.blur_glossy = 4.0, 1.0
        cycles.pixel_filter_type, cycles.filter_width = "BLACKMAN_HARRIS", 1.5
        self.scene.view_settings.view_transform = "Standard"
        views = []
        for view, pose in enumerate(poses):
            cycles.seed = noise + view
            views.append(self._shoot(pose, size))
        return np.stack(views)

    def labels(
        self, poses: Sequence[Any], size: int, models: Sequence[Any], ground: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns which object every ray sees, and which objects it would meet.

        One ray goes through the middle of each of `size` x `size` cells.

        Returns:
          Visible objects from 1, 0 is the background, uint8 [v, size, size], and
          complete shapes, bool [v, objects, size, size].
        """
        self._prepare_labels(ground)
        self._paint(models, {i: ((i + 1) / 255,) * 3 for i in range(len(models))})
        bpy.context.view_layer.material_override = _glow(through=False)
        visible = self._sweep(poses, size)[..., 0]
        bpy.context.view_layer.material_override = _glow(through=True)
        complete = np.empty((len(poses), len(models), size, size), bool)
        for start in range(0, len(models), _CHANNELS):
            group = range(start, min(start + _CHANNELS, len(models)))
            self._paint(models, {i: np.eye(_CHANNELS)[i - start] for i in group})
            hits = self._sweep(poses, size) > 0
            complete[:, group] = np.moveaxis(hits[..., : len(group)], -1, 1)
        return visible, complete

    def _prepare_labels(self, ground: Any) -> None:
        ground.hide_render, self.scene.world = True, None
        for thing in self.scene.objects:
            thing.hide_render |= thing.type == "LIGHT"
        cycles = self.scene.cycles
        cycles.samples, cycles.use_denoising, cycles.seed = 1, False, 0
        cycles.pixel_filter_type, cycles.filter_width = "BOX", 0.01
        cycles.max_bounces, cycles.transparent_max_bounces = 0, _MOST_SURFACES
        cycles.sample_clamp_direct = 0
        self.scene.view_settings.view_transform = "Raw"

    def _paint(self, models: Sequence[Any], colours: dict[int, Any]) -> None:
        for i, model in enumerate(models):
            for part in model.parts:
                part.color = (*colours.get(i, (0, 0, 0)), 1)

    def _sweep(self, poses: Sequence[Any], size: int) -> np.ndarray:
        return np.stack([self._shoot(pose, size) for pose in poses])

    def _shoot(self, pose: Any, size: int) -> np.ndarray:
        render = self.scene.render
        render.resolution_x = render.resolution_y = size
        render.resolution_percentage = 100
        self.camera.matrix_world = mathutils.Matrix(pose)
        self.path.unlink(missing_ok=True)
        bpy.ops.render.render(write_still=True)
        return _read(self.path, size)


def _read(path: pathlib.Path, size: int) -> np.ndarray:
    image = bpy.data.images.load(str(path))
    image.colorspace_settings.name = "Non-Color"
    pixels = np.empty(size * size * image.channels, np.float32)
    image.pixels.foreach_get(pixels)
    bpy.data.images.remove(image)
    pixels = pixels.reshape(size, size, -1)[::-1, :, :3]
    return np.round(pixels * 255).astype(np.uint8)


def _glow(through: bool) -> Any:
    """A material that shines in the object's own colour, and may let rays through."""
    material = bpy.data.materials.new("glow")
    material.use_nodes = True
    tree = material.node_tree
    tree.nodes.clear()
    kinds = ("ObjectInfo", "Emission", "BsdfTransparent", "AddShader", "OutputMaterial")
    info, glow, clear, both, out = (tree.nodes.new(f"ShaderNode{k}") for k in kinds)
    tree.links.new(info.outputs["Color"], glow.inputs["Color"])
    tree.links.new(glow.outputs[0], both.inputs[0])
    tree.links.new(clear.outputs[0], both.inputs[1])
    last = both if through else glow
    tree.links.new(last.outputs[0], out.inputs["Surface"])
    return material


def _enable_gpus() -> None:
    preferences = bpy.context.preferences.addons["cycles"].preferences
    for backend in _BACKENDS:
        try:
            preferences.compute_device_type = backend
        except TypeError:  # Not compiled into this Blender.
            continue
        preferences.refresh_devices()
        found = [d for d in preferences.devices if d.type == backend]
        for device in preferences.devices:
            device.use = device.type == backend
        if found:
            return
    raise ValueError("Cycles finds no GPU here; use --device cpu")
