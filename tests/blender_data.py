"""Small meshes and panoramas for the tests of the Blender route, written by hand."""

import json
import math
import pathlib
import struct

import numpy as np
from PIL import Image


def box_mesh(size=(1.0, 1.0, 1.0)):
    """Returns vertices [8, 3] and triangles [12, 3] of a box."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4)]
    quads.append((1, 5, 7, 3))
    triangles = [(a, b, c) for a, b, c, _ in quads] + [
        (a, c, d) for a, _, c, d in quads
    ]
    return corners * np.array(size), np.array(triangles)


def torus_mesh(rings=24, sides=12, thin=0.35):
    """Returns vertices and triangles of a ring that lies flat (y is up)."""
    u, v = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in (rings, sides)))
    u, v = u.T.ravel(), v.T.ravel()
    flat = 1 + thin * np.cos(v)
    points = np.stack([flat * np.cos(u), thin * np.sin(v), flat * np.sin(u)], -1)
    triangles = []
    for i in range(rings):
        for j in range(sides):
            a, b = i * sides + j, i * sides + (j + 1) % sides
            c, d = (a + sides) % len(points), (b + sides) % len(points)
            triangles += [(a, b, c), (b, d, c)]
    return points, np.array(triangles)


def write_obj(path, vertices, triangles, texture=None, colour=None):
    """Writes an .obj, with an .mtl beside it if it has a texture or a colour."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"v {x} {y} {z}" for x, y, z in vertices]
    if texture or colour:
        what = f"map_Kd {texture}" if texture else "Kd {} {} {}".format(*colour)
        path.with_suffix(".mtl").write_text(f"newmtl one\n{what}\n")
        lines = [f"mtllib {path.stem}.mtl", *lines, "usemtl one"]
    span = np.ptp(vertices, axis=0) + 1e-9
    uvs = ((vertices - vertices.min(axis=0)) / span)[:, :2]
    lines += [f"vt {u} {v}" for u, v in uvs]
    lines += ["f " + " ".join(f"{i + 1}/{i + 1}" for i in t) for t in triangles]
    path.write_text("\n".join(lines) + "\n")


def write_glb(path, vertices, triangles, colour=(0.1, 0.3, 0.8)):
    """Writes a binary glTF with one coloured mesh."""
    points = vertices.astype("<f4").tobytes()
    corners = triangles.astype("<u4").tobytes()
    low, high = (np.float32(f(vertices, axis=0)).tolist() for f in (np.min, np.max))
    views = [
        {"buffer": 0, "byteOffset": 0, "byteLength": len(points)},
        {"buffer": 0, "byteOffset": len(points), "byteLength": len(corners)},
    ]
    accessors = [
        {"type": "VEC3", "count": len(vertices), "min": low, "max": high},
        {"type": "SCALAR", "count": triangles.size},
    ]
    for i, kind in enumerate((5126, 5125)):
        accessors[i] |= {"bufferView": i, "componentType": kind}
    shape = {"attributes": {"POSITION": 0}, "indices": 1, "material": 0}
    document = {
        "asset": {"version": "2.0"},
        "scenes": [{"nodes": [0]}],
        # A parent with a transformation of its own, as real files have.
        "nodes": [{"children": [1], "scale": [3, 3, 3]}, {"mesh": 0}],
        "meshes": [{"primitives": [shape]}],
        "materials": [{"pbrMetallicRoughness": {"baseColorFactor": [*colour, 1]}}],
        "buffers": [{"byteLength": len(points) + len(corners)}],
        "bufferViews": views,
        "accessors": accessors,
    }
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    binary = points + corners
    chunks = struct.pack("<I4s", len(text), b"JSON") + text
    chunks += struct.pack("<I4s", len(binary), b"BIN\0") + binary
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks)


def write_meshes(folder):
    """Writes three meshes, each in the layout of another data set."""
    folder = pathlib.Path(folder)
    texture = folder / "Mug" / "materials" / "textures" / "texture.png"
    texture.parent.mkdir(parents=True)
    checker = np.indices((16, 16)).sum(axis=0) // 2 % 2
    colours = np.array([[230, 40, 30], [250, 220, 60]], np.uint8)
    Image.fromarray(colours[checker]).save(texture)
    # The material file names the texture without its folder, as Google's do.
    write_obj(folder / "Mug/meshes/model.obj", *box_mesh((1, 1, 2)), "texture.png")
    ring = folder / "02876657" / "abc" / "models" / "model_normalized.obj"
    write_obj(ring, *torus_mesh(), colour=(0.1, 0.7, 0.2))
    write_glb(folder / "vase.glb", *box_mesh((0.1, 0.3, 0.1)))


def write_panorama(path, height=16):
    """Writes an equirectangular picture: bright sky above, brown ground below."""
    rows = (np.arange(height) + 0.5) / height
    columns = 0.5 + 0.5 * np.cos(np.arange(2 * height) * (math.pi / height))
    sky = np.array([180, 205, 250.0]) * (0.6 + 0.4 * columns[:, None])
    ground = np.array([150, 100, 60.0]) * (0.5 + 0.5 * columns[:, None])
    picture = np.where((rows < 0.5)[:, None, None], sky[None], ground[None])
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture.astype(np.uint8)).save(path)
