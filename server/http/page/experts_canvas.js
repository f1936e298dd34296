// The map on its canvas: a row for each layer, a column for each expert. What happened to a cell shines and fades.
import { HAPPENINGS } from "/page/experts.js";

const FADE_MILLISECONDS = 1200;
const LEAST = 3; // pixels of a cell, its gap included
const WIDEST = 18;
const TALLEST = 24;
const LABEL_HEIGHT = 12;
const MOST_DEVICE_PIXELS = 16384; // of a canvas's side

const bounded = (value, least, most) => Math.max(least, Math.min(most, Math.floor(value)));

export class ExpertCanvas {
  constructor(canvas, map) {
    this.canvas = canvas;
    this.map = map;
    this.context = canvas.getContext("2d");
    this.shining = new Map(); // cell -> {what, since}
    this.cursor = -1;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.readColours();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.readColours();
      this.draw();
    });
    new ResizeObserver(() => this.layOut()).observe(canvas.parentElement);
  }

  readColours() {
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries([...HAPPENINGS, "absent", "resident", "lower", "faint", "cursor"].map((name) => [name, colour(name)]));
    this.font = `10px ${style.fontFamily}`;
  }

  layOut() {
    const { layers, experts } = this.map;
    if (!this.map.cells) return;
    const frame = this.canvas.parentElement;
    this.context.font = this.font;
    this.gutter = Math.ceil(this.context.measureText(String(layers.at(-1))).width) + 6;
    this.wide = bounded((frame.clientWidth - this.gutter) / experts, LEAST, WIDEST);
    this.tall = bounded((innerHeight * 0.45) / layers.length, LEAST, TALLEST);
    const width = this.gutter + experts * this.wide;
    const height = LABEL_HEIGHT + layers.length * this.tall;
    const scale = Math.min(devicePixelRatio, MOST_DEVICE_PIXELS / width, MOST_DEVICE_PIXELS / height);
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.draw();
  }

  // `changes` as ExpertMap.apply gives them.
  show(changes, whole) {
    if (whole) {
      this.shining.clear();
      return this.layOut();
    }
    if (this.still.matches && changes.some(([, what]) => what)) this.dim();
    const since = performance.now();
    for (const [cell, what] of changes) {
      if (what) this.shining.set(cell, { what, since });
      this.drawCell(cell, since);
    }
    if (!this.still.matches) this.animate();
  }

  dim() {
    const cells = [...this.shining.keys()];
    this.shining.clear();
    for (const cell of cells) this.drawCell(cell, 0);
  }

  animate() {
    if (this.animating || !this.shining.size) return;
    this.animating = true;
    requestAnimationFrame((now) => {
      this.animating = false;
      for (const [cell, { since }] of this.shining) {
        if (now - since >= FADE_MILLISECONDS) this.shining.delete(cell);
        this.drawCell(cell, now);
      }
      this.animate();
    });
  }

  draw() {
    if (!this.map.cells) return;
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.drawLabels();
    const now = performance.now();
    for (let cell = 0; cell < this.map.cells; ++cell) this.drawCell(cell, now);
  }

  drawLabels() {
    const { context, map, wide, tall, gutter } = this;
    context.font = this.font;
    context.fillStyle = this.colours.faint;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const rows = Math.ceil(LABEL_HEIGHT / tall);
    for (let row = 0; row < map.layers.length; row += rows) {
      context.fillText(map.layers[row], gutter - 4, LABEL_HEIGHT + (row + 0.5) * tall);
    }
    context.textAlign = "left";
    context.textBaseline = "top";
    const columns = 8 * Math.ceil(28 / (8 * wide));
    for (let column = 0; column < map.experts; column += columns) context.fillText(column, gutter + column * wide, 0);
  }

  drawCell(cell, now) {
    const { context, map, wide, tall, colours } = this;
    const x = this.gutter + (cell % map.experts) * wide;
    const y = LABEL_HEIGHT + Math.floor(cell / map.experts) * tall;
    const width = wide - (wide > LEAST ? 1 : 0);
    const height = tall - (tall > LEAST ? 1 : 0);
    const formats = map.resident[cell];
    context.clearRect(x, y, wide, tall);
    context.fillStyle = formats & 1 ? colours.resident : formats ? colours.lower : colours.absent;
    context.fillRect(x, y, width, height);
    const shine = this.shining.get(cell);
    if (shine) {
      context.globalAlpha = this.still.matches ? 1 : bounded(100 * (1 - (now - shine.since) / FADE_MILLISECONDS), 0, 100) / 100;
      context.fillStyle = colours[shine.what];
      context.fillRect(x, y, width, height);
      context.globalAlpha = 1;
    }
    if (cell === this.cursor) {
      context.strokeStyle = colours.cursor;
      context.lineWidth = 1.5;
      context.strokeRect(x + 0.25, y + 0.25, width - 0.5, height - 0.5);
    }
  }

  // Of a mouse's place; -1: none.
  cellAt({ offsetX, offsetY }) {
    const column = Math.floor((offsetX - this.gutter) / this.wide);
    const row = Math.floor((offsetY - LABEL_HEIGHT) / this.tall);
    const inside = column >= 0 && column < this.map.experts && row >= 0 && row < this.map.layers.length;
    return inside ? row * this.map.experts + column : -1;
  }

  // Where a cell is, in pixels of the canvas.
  placeOf(cell) {
    return {
      x: this.gutter + ((cell % this.map.experts) + 0.5) * this.wide,
      y: LABEL_HEIGHT + (Math.floor(cell / this.map.experts) + 0.5) * this.tall,
    };
  }

  point(cell) {
    const before = this.cursor;
    this.cursor = cell;
    for (const one of [before, cell]) if (one >= 0) this.drawCell(one, performance.now());
  }
}
