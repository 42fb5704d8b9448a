"""Follows rays from the camera to surfaces, and once more from metal."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from ocloc_jax.scenes import shading, shapes
from ocloc_jax.scenes.shading import Surface, World
from ocloc_jax.scenes.vector import Vector, choose

# Rays of one step of the mirror bounce, at most, and into how many steps a picture all
# of metal is split: few enough to waste little on the last step.
_BLOCK, _STEPS = 4096, 8


def trace(
    world: World, origin: Vector, rays: Vector
) -> tuple[Vector, Int[Array, "s r"], Float[Array, "n r"]]:
    """Returns colours, the objects seen, and how much of pixels each one covers."""
    distance, owner, coverage = shapes.nearest(origin, rays, world.solids)
    surface = hit(world, origin, rays, distance, owner)
    glow = shading.illuminate(world, surface, rays)
    mirrored = mirror(world, surface, rays)
    colour = shading.colour_surface(world, surface, glow, mirrored)
    return shading.fade_out(world, surface, rays, colour), owner, coverage


def hit(
    world: World,
    origin: Vector,
    rays: Vector,
    distance: Float[Array, "s r"],
    owner: Int[Array, "s r"],
) -> Surface:
    """Returns what rays meet at `distance`, on the ground where there is no object."""
    on_object = owner < world.metal.shape[0]
    # Rays that miss the ground as well end far away, where they become sky.
    to_ground = jnp.minimum(-origin.z / jnp.minimum(rays.z, -1e-4), 1e3)
    point = origin.plus(rays, jnp.where(on_object, distance, to_ground))
    solid, colour, metal = jax.tree.map(
        lambda values: _pick(values, owner),
        (world.solids, Vector(*world.colour.T), world.metal),
    )
    normal = shapes.surface_normal(point, solid)
    return Surface(
        point=point,
        normal=choose(on_object, normal, Vector(0.0, 0.0, 1.0)),
        albedo=choose(on_object, colour, shading.ground_colour(world, point)),
        owner=owner,
        metal=metal & on_object,
        on_object=on_object,
    )


def _pick(values: Shaped[Array, "n"], index: Int[Array, "*r"]) -> Shaped[Array, "*r"]:
    """Returns `values[index]`: a chain of selects fuses, a gather does not."""
    picked = jnp.broadcast_to(values[0], index.shape)
    for k in range(1, values.shape[0]):
        picked = jnp.where(index == k, values[k], picked)
    return picked


def mirror(world: World, surface: Surface, rays: Vector) -> Vector:
    """Returns what metal reflects, 0 elsewhere.

    Metal fills a small part of most pictures. Its rays are moved to the front and
    traced in blocks, as many as there are.
    """
    rank, gather, count = _compact(surface.metal.reshape(-1))
    outward = rays.reflected(surface.normal)
    starts = [values.reshape(-1) for values in (*surface.point, *outward)]
    owners, total = surface.owner.reshape(-1), gather.shape[0]
    block = min(_BLOCK, -(-total // _STEPS))

    def step(carry):
        first, colours = carry
        chosen = jax.lax.dynamic_slice(gather, (first,), (block,))
        start = [values[chosen][None] for values in starts]
        colour = _reflect(world, start, owners[chosen][None])
        colours = [
            jax.lax.dynamic_update_slice(c, new[0], (first,))
            for c, new in zip(colours, colour, strict=True)
        ]
        return first + block, colours

    none = [jnp.zeros(total + block) for _ in range(3)]
    gather = jnp.pad(gather, (0, block))
    _, colours = jax.lax.while_loop(lambda carry: carry[0] < count, step, (0, none))
    seen = Vector(*(c[rank].reshape(surface.metal.shape) for c in colours))
    return choose(surface.metal, seen, Vector(0.0, 0.0, 0.0))


def _reflect(
    world: World, start: list[Float[Array, "1 r"]], owner: Int[Array, "1 r"]
) -> Vector:
    """Traces rays that leave `owner`; metal they meet shows only the sky."""
    origin, rays = Vector(*start[:3]), Vector(*start[3:])
    distance, other, _ = shapes.nearest(origin, rays, world.solids, skip=owner)
    surface = hit(world, origin, rays, distance, other)
    glow = shading.illuminate(world, surface, rays)
    sky = shading.sky_colour(world, rays.reflected(surface.normal))
    colour = shading.colour_surface(world, surface, glow, sky)
    return shading.fade_out(world, surface, rays, colour)


def _compact(
    wanted: Bool[Array, "m"],
) -> tuple[Int[Array, "m"], Int[Array, "m"], Int[Array, ""]]:
    """Returns ranks among the wanted, the wanted in order, and their number."""
    total = wanted.shape[0]
    rank = jnp.cumsum(wanted.astype(jnp.int32)) - 1
    place = jnp.where(wanted, rank, total)
    order = jnp.zeros(total, jnp.int32)
    order = order.at[place].set(jnp.arange(total), mode="drop", unique_indices=True)
    return jnp.maximum(rank, 0), order, rank[-1] + 1
