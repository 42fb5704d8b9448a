"""Scenes rendered by Blender: real meshes and environment maps, or primitives.

`worker`, `stage`, `models`, `surroundings` and `cycles` run inside Blender's own Python
and import nothing but `bpy`, NumPy and the standard library; the rest never imports
`bpy`.
"""
