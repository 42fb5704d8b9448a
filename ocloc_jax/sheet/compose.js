"use strict";
// How the model composes a picture, on layers rounded to bytes. No page, no state.

const BOARD = [1, 0.6]; // of the checkerboard, in the model's range [-1, 1]

/** Red, green, blue, alpha of every pixel of an embedded picture. */
function bytesOf(image) {
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, canvas.width, canvas.height).data;
}

/** One channel of one tile, its bytes read as numbers from `low` to `high`. */
function channelOf(scene, bytes, layer, position, channel, low = 0, high = 1) {
  const { height, width, positions } = scene;
  const values = new Float32Array(height * width);
  for (let y = 0, i = 0; y < height; y++) {
    let at = (((layer * height + y) * positions + position) * width) * 4 + channel;
    for (let x = 0; x < width; x++, i++, at += 4) {
      values[i] = low + (bytes[at] / 255) * (high - low);
    }
  }
  return values;
}

function colourOf(scene, layer, position, channel) {
  const [low, high] = scene.ranges[layer];
  return channelOf(scene, scene.colours, layer, position, channel, low, high);
}

const shapeOf = (scene, k, position) => channelOf(scene, scene.covers, k, position, 0);
const shadowOf = (scene, k, position) => channelOf(scene, scene.covers, k, position, 1);
const lightOf = (scene, k, position) => channelOf(scene, scene.covers, k, position, 2);

/** What is seen of each shape: itself times what nearer ones leave; background last. */
function orderedMasks(shapes, ranks, size) {
  const masks = shapes.map(() => null);
  const shown = [...shapes.keys()].filter((k) => shapes[k]);
  let rank, before, after = new Float32Array(size).fill(1);
  for (const k of shown.sort((a, b) => ranks[a] - ranks[b])) {
    // Of two with the same rank neither covers the other.
    if (ranks[k] !== rank) before = after.slice();
    rank = ranks[k];
    masks[k] = shapes[k].map((shape, i) => shape * before[i]);
    after = after.map((left, i) => left * (1 - shapes[k][i]));
  }
  return [...masks, after];
}

/** Shapes mixed by strength instead, in no order; background last. */
function softMasks(shapes, size) {
  const background = new Float32Array(size).fill(1);
  const total = new Float32Array(size);
  for (const shape of shapes.filter(Boolean)) {
    shape.forEach((value, i) => {
      background[i] *= 1 - value;
      total[i] += value;
    });
  }
  const share = total.map((sum, i) => (sum > 0 ? (1 - background[i]) / sum : 0));
  return [...shapes.map((shape) => shape && shape.map((s, i) => s * share[i])), background];
}

/** How much light falls on the background under the shadows that are shown. */
function lightOnGround(scene, position, shown) {
  const size = scene.height * scene.width;
  if (!scene.shadows) return new Float32Array(size).fill(1);
  const shapes = shown.shadows.map((on, k) => (on ? shadowOf(scene, k, position) : null));
  const masks = scene.orderedShadows
    ? orderedMasks(shapes, scene.ranks[position], size)
    : softMasks(shapes, size);
  const lit = masks.pop().slice();
  masks.forEach((mask, k) => {
    if (!mask) return;
    const light = lightOf(scene, k, position);
    mask.forEach((value, i) => (lit[i] += value * light[i]));
  });
  return lit;
}

/** A checkerboard in place of one colour channel. */
function checkerboard(scene) {
  const { height, width } = scene;
  const square = Math.max(1, Math.round(width / 16));
  const dark = (i) => (Math.floor(i / width / square) + Math.floor((i % width) / square)) % 2;
  return Float32Array.from({ length: height * width }, (_, i) => BOARD[dark(i)]);
}

/** Masks and red, green and blue in [-1, 1], of the parts that are shown. */
function compose(scene, position, shown) {
  const num = scene.presence.length;
  const shapes = shown.objects.map((on, k) => (on ? shapeOf(scene, k, position) : null));
  const masks = orderedMasks(shapes, scene.ranks[position], scene.height * scene.width);
  const lit = lightOnGround(scene, position, shown);
  const channels = [0, 1, 2].map((c) => {
    const ground = shown.background ? colourOf(scene, num, position, c) : checkerboard(scene);
    const out = ground.map((value, i) => masks[num][i] * ((value + 1) * lit[i] - 1));
    for (let k = 0; k < num; k++) {
      if (!masks[k]) continue;
      const colour = colourOf(scene, k, position, c);
      masks[k].forEach((mask, i) => (out[i] += mask * colour[i]));
    }
    return out;
  });
  return { masks, channels };
}

/** The strongest layer of every pixel; the background only where it beats all. */
function ownersOf(masks) {
  const last = masks.length - 1;
  return Uint8Array.from(masks[last], (_, i) => {
    let best = last, value = -1;
    masks.forEach((mask, k) => {
      if (mask && mask[i] > value) [best, value] = [k, mask[i]];
    });
    return best;
  });
}
