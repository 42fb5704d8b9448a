// What is shown, and the pictures of it.

const $ = (id) => document.getElementById(id);
const values = JSON.parse($("values").textContent);
const PRESENT = 0.5; // as in the number of objects that the model reports
const RAMP = [[253, 202, 80], [222, 88, 105], [66, 52, 128]]; // near to far
const state = { scene: 0, position: 0, objects: [], shadows: [], background: true, colours: "object" };
let scene, player, remembered;

function load(index) {
  scene = values.scenes[index];
  for (const name of ["photographs", "colours", "covers"]) {
    scene[name] ??= name === "photographs" ? $(`${name}-${index}`) : bytesOf($(`${name}-${index}`));
  }
  Object.assign(state, { scene: index, position: 0 });
  showAll(true);
}

function showAll(on) {
  Object.assign(state, {
    objects: scene.presence.map(() => on),
    shadows: scene.presence.map(() => on && scene.shadows),
    background: on,
  });
}

const isPresent = (k) => scene.presence[k] >= PRESENT;
const isEdited = () =>
  !state.background || state.objects.includes(false) || (scene.shadows && state.shadows.includes(false));
const css = (rgb) => `rgb(${rgb.join(",")})`;

/** Objects that are there and shown, the nearest first, with their places. */
function depthOrder() {
  const ranks = scene.ranks[state.position];
  const shown = [...ranks.keys()].filter((k) => isPresent(k) && state.objects[k]);
  shown.sort((a, b) => ranks[a] - ranks[b] || a - b);
  const place = (k) => 1 + shown.filter((j) => ranks[j] < ranks[k]).length;
  return shown.map((k) => ({ k, place: place(k) }));
}

function paint(canvas, pixel) {
  const { height, width } = scene;
  Object.assign(canvas, { height, width });
  const image = new ImageData(width, height);
  for (let i = 0; i < height * width; i++) image.data.set([...pixel(i), 255], 4 * i);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const toByte = (x) => Math.round((Math.min(1, Math.max(-1, x)) + 1) * 127.5);

function paintPhotograph(canvas, number) {
  const { height, width } = scene;
  Object.assign(canvas, { height, width });
  const from = [number * width, 0, width, height];
  canvas.getContext("2d").drawImage(scene.photographs, ...from, 0, 0, width, height);
}

function paintSegments(masks, places) {
  const owners = ownersOf(masks);
  const board = checkerboard(scene).map(toByte);
  const colours = values.palette.map((colour, k) => {
    const at = places.find((entry) => entry.k === k);
    if (state.colours === "object") return colour;
    return at ? ramp((at.place - 1) / Math.max(1, places.length - 1)) : [120, 120, 120];
  });
  const ground = (i) => (state.background ? values.ground : Array(3).fill(board[i]));
  paint($("segments"), (i) => colours[owners[i] < masks.length - 1 ? owners[i] : -1] ?? ground(i));
  number(owners, places);
}

function ramp(share) {
  const i = share < 0.5 ? 0 : 1;
  const t = share * 2 - i;
  return RAMP[i].map((value, c) => Math.round(value + t * (RAMP[i + 1][c] - value)));
}

/** Writes numbers onto the objects: their names, or their places in depth. */
function number(owners, places) {
  const { height, width } = scene;
  $("numbers").replaceChildren();
  for (const { k, place } of places) {
    let [count, x, y] = [0, 0, 0];
    owners.forEach((owner, i) => {
      if (owner === k) [count, x, y] = [count + 1, x + (i % width), y + Math.floor(i / width)];
    });
    if (count < 0.003 * owners.length) continue;
    const label = document.createElement("span");
    label.textContent = state.colours === "object" ? k + 1 : place;
    label.style.left = `${(100 * (x / count + 0.5)) / width}%`;
    label.style.top = `${(100 * (y / count + 0.5)) / height}%`;
    $("numbers").append(label);
  }
}

function paintPart(card, k) {
  const at = state.position;
  const [object, shadow] = card.querySelectorAll("canvas");
  const board = checkerboard(scene);
  const alpha = shapeOf(scene, k, at);
  const rgb = [0, 1, 2].map((c) => colourOf(scene, k, at, c));
  paint(object, (i) => rgb.map((c) => toByte(alpha[i] * c[i] + (1 - alpha[i]) * board[i])));
  if (!scene.shadows) return;
  const shape = shadowOf(scene, k, at), light = lightOf(scene, k, at);
  paint(shadow, (i) => Array(3).fill(toByte(1 - 2 * shape[i] * (1 - light[i]))));
}
