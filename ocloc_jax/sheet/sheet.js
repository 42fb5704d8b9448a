// The page around the pictures: its text, and what a person can do to it.

// ---- text and controls

/** Which photograph is nearest on the path, and whether this is its place. */
function photograph() {
  const distance = scene.knots.map((knot) => Math.abs(knot - state.position));
  const nearest = distance.indexOf(Math.min(...distance));
  const before = scene.knots.filter((knot) => knot <= state.position).length;
  return { nearest, exact: distance[nearest] === 0, before };
}

function describe() {
  const { nearest, exact, before } = photograph();
  const num = scene.knots.length;
  paintPhotograph($("input"), nearest);
  $("input").classList.toggle("faded", !exact);
  $("input-text").textContent = exact
    ? `photo ${nearest + 1} of ${num}`
    : `nearest: photo ${nearest + 1}`;
  $("kind").dataset.kind = exact ? "reconstruction" : "imagined";
  $("kind").textContent = exact ? "Reconstruction" : "Imagined";
  const where = exact ? `of photo ${nearest + 1}` : `between ${before} and ${before + 1}`;
  $("kind-text").textContent = where;
  $("edited").hidden = !isEdited();
  const slider = $("position");
  slider.value = state.position;
  slider.setAttribute("aria-valuetext", `${$("kind").textContent} ${where}`);
  [...$("knots").children].forEach((knot, i) => {
    knot.toggleAttribute("aria-current", exact && i === nearest);
  });
}

function listOrder(places) {
  const items = places.map(({ k, place }) => {
    const item = document.createElement("li");
    item.style.setProperty("--colour", css(values.palette[k]));
    item.textContent = `Object ${k + 1}`;
    item.value = place;
    return item;
  });
  $("order").replaceChildren(...items);
}

function updateParts(places) {
  for (const card of document.querySelectorAll(".part")) {
    const { what, k } = card.dataset;
    for (const tile of card.querySelectorAll(".tile")) {
      const kind = tile.dataset.what;
      const on = kind === "background" ? state.background : state[kind][k];
      tile.querySelector("input").checked = on;
    }
    if (what === "background") {
      const rgb = [0, 1, 2].map((c) => colourOf(scene, scene.presence.length, state.position, c));
      paint(card.querySelector("canvas"), (i) => rgb.map((c) => toByte(c[i])));
      continue;
    }
    paintPart(card, Number(k));
    const at = places.find((entry) => entry.k === Number(k));
    card.querySelector(".place").textContent = at ? `depth ${at.place}` : "";
  }
}

function update() {
  const { masks, channels } = compose(scene, state.position, state);
  const places = depthOrder();
  paint($("picture"), (i) => channels.map((channel) => toByte(channel[i])));
  paintSegments(masks, places);
  describe();
  listOrder(places);
  updateParts(places);
  for (const button of document.querySelectorAll("[data-colours]")) {
    button.setAttribute("aria-pressed", button.dataset.colours === state.colours);
  }
  clearTimeout(remembered);
  remembered = setTimeout(remember, 250);
}

// ---- building the page for a scene

function makeTile(card, name) {
  const box = card.querySelector(`[data-what=${name}]`);
  box.querySelector("input").addEventListener("change", (event) => {
    const { k } = card.dataset;
    if (name === "background") state.background = event.target.checked;
    else state[name][k] = event.target.checked;
    update();
  });
  return box;
}

function makePart(k) {
  const card = $("part").content.cloneNode(true).firstElementChild;
  card.dataset.k = k;
  card.style.setProperty("--colour", css(values.palette[k]));
  card.querySelector(".name").textContent = `Object ${k + 1}`;
  for (const name of ["objects", "shadows"]) {
    const input = makeTile(card, name).querySelector("input");
    input.setAttribute("aria-label", name === "objects" ? `Object ${k + 1}` : `Shadow of object ${k + 1}`);
  }
  if (!scene.shadows) card.querySelector("[data-what=shadows]").remove();
  card.querySelector("meter").value = scene.presence[k];
  card.querySelector(".presence span").textContent = `presence ${scene.presence[k].toFixed(2)}`;
  return card;
}

function makeBackground() {
  const card = $("part").content.cloneNode(true).firstElementChild;
  card.dataset.what = "background";
  card.style.setProperty("--colour", css(values.ground));
  card.querySelector(".name").textContent = "Background";
  card.querySelector("[data-what=shadows]").remove();
  card.querySelector(".presence").remove();
  const tile = card.querySelector(".tile");
  tile.dataset.what = "background";
  tile.querySelector("span").textContent = "alone";
  makeTile(card, "background").querySelector("input").setAttribute("aria-label", "Background");
  return card;
}

function build() {
  const all = [...scene.presence.keys()];
  const present = all.filter(isPresent), unused = all.filter((k) => !isPresent(k));
  $("parts").replaceChildren(...present.map(makePart), makeBackground());
  $("unused-parts").replaceChildren(...unused.map(makePart));
  $("unused").hidden = !unused.length;
  $("unused").querySelector("summary").textContent =
    `${unused.length} slot${unused.length === 1 ? "" : "s"} that the model calls empty (presence below ${PRESENT})`;
  $("count").textContent = `The model counts ${present.length} object${present.length === 1 ? "" : "s"}.`;
  $("error").textContent =
    `Layers are rounded to bytes here, which moves no pixel by more than ${scene.error} of 255 from the model's own.`;
  const slider = $("position");
  slider.max = scene.positions - 1;
  slider.disabled = $("play").disabled = scene.positions === 1;
  $("knots").replaceChildren(...scene.knots.map(makeKnot));
  [...$("scenes").children].forEach((button, i) => button.setAttribute("aria-pressed", i === state.scene));
}

function makeKnot(knot, i) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = i + 1;
  button.style.setProperty("--at", knot / Math.max(1, scene.positions - 1));
  button.setAttribute("aria-label", `Go to photograph ${i + 1}`);
  button.addEventListener("click", () => move(knot));
  return button;
}

function makeSceneButton(described, i) {
  const button = document.createElement("button"), canvas = document.createElement("canvas");
  scene = described;
  scene.photographs = $(`photographs-${i}`);
  paintPhotograph(canvas, 0);
  button.type = "button";
  button.append(canvas, described.name);
  button.addEventListener("click", () => open(i));
  return button;
}

function open(index) {
  play(false);
  load(index);
  build();
  update();
}

// ---- moving

function move(position) {
  play(false);
  state.position = Math.min(scene.positions - 1, Math.max(0, position));
  update();
}

function play(on) {
  clearInterval(player);
  $("play").textContent = on ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", on);
  player = undefined;
  if (!on) return;
  let step = state.position === scene.positions - 1 ? -1 : 1;
  player = setInterval(() => {
    state.position += step;
    if (state.position <= 0 || state.position >= scene.positions - 1) step = -step;
    update();
  }, 110);
}

/** Dragging across the picture by its width is the whole path. */
function drag(canvas) {
  let start;
  canvas.addEventListener("pointerdown", (event) => {
    start = { x: event.clientX, position: state.position };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!start) return;
    const share = (event.clientX - start.x) / canvas.clientWidth;
    move(start.position + Math.round(share * (scene.positions - 1)));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => (start = undefined));
  }
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const digit = /^Digit([1-9])$/.exec(event.code);
  const k = digit ? digit[1] - 1 : -1;
  const arrows = { ArrowLeft: -1, ArrowRight: 1 };
  if (k >= 0 && k < scene.presence.length) {
    const what = event.shiftKey ? "shadows" : "objects";
    if (what === "objects" || scene.shadows) state[what][k] = !state[what][k];
  } else if (event.key === "b") state.background = !state.background;
  else if (event.key === "a") showAll(true);
  else if (event.key in arrows && event.target.id !== "position") {
    event.preventDefault();
    return move(state.position + arrows[event.key]);
  } else return;
  update();
}

// ---- the address, so that a view of the sheet can be sent to someone

function remember() {
  const hidden = state.background ? [] : ["background"];
  state.objects.forEach((on, k) => on || hidden.push(`object${k + 1}`));
  if (scene.shadows) state.shadows.forEach((on, k) => on || hidden.push(`shadow${k + 1}`));
  const { scene: index, position, colours } = state;
  const query = new URLSearchParams({ scene: index + 1, position, hide: hidden, colours });
  try {
    history.replaceState(null, "", `#${query}`);
  } catch {
    // Some frames have no address of their own.
  }
}

function recall() {
  const query = new URLSearchParams(location.hash.slice(1));
  const index = Math.trunc(query.get("scene")) - 1;
  load(index in values.scenes ? index : 0);
  state.position = Math.min(scene.positions - 1, Math.max(0, Math.trunc(query.get("position")) || 0));
  state.colours = query.get("colours") === "depth" ? "depth" : "object";
  for (const name of (query.get("hide") ?? "").split(",")) {
    const [, what, number] = /^(object|shadow)(\d+)$/.exec(name) ?? [];
    if (name === "background") state.background = false;
    if (what && state[`${what}s`][number - 1]) state[`${what}s`][number - 1] = false;
  }
}

function start() {
  $("scenes").replaceChildren(...values.scenes.map(makeSceneButton));
  $("scenes").hidden = values.scenes.length === 1;
  recall();
  build();
  $("position").addEventListener("input", (event) => move(Number(event.target.value)));
  $("play").addEventListener("click", () => play(!player));
  $("all").addEventListener("click", () => (showAll(true), update()));
  $("none").addEventListener("click", () => (showAll(false), update()));
  for (const button of document.querySelectorAll("[data-colours]")) {
    button.addEventListener("click", () => ((state.colours = button.dataset.colours), update()));
  }
  drag($("picture"));
  drag($("segments"));
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", () => (recall(), build(), update()));
  update();
}

window.addEventListener("load", start);
