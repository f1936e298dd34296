// What is known of the experts, and what happened to them since the last event.
import { call, events } from "/page/events.js";

// In order of what matters where an expert went through several as often.
export const HAPPENINGS = ["skipped", "lowered", "missed", "hit", "read"];
const COUNTS = ["hits", "misses", "lowered", "skipped", "reads"]; // an event's numbers after expert and residency; behind them on_device
const AGAIN_MILLISECONDS = 1000;

export class ExpertMap {
  constructor() {
    this.shape([], 0);
    this.formats = [];
    this.totals = null;
    this.restart();
  }

  // Counts from now on.
  restart() {
    this.seen = Object.fromEntries(HAPPENINGS.map((what) => [what, 0]));
  }

  shape(layers, experts) {
    this.layers = layers;
    this.experts = experts;
    this.resident = new Uint32Array(layers.length * experts);
    this.on_device = new Uint32Array(layers.length * experts);
    for (const count of COUNTS) this[count] = new Float64Array(layers.length * experts);
  }

  get cells() {
    return this.resident.length;
  }

  get residents() {
    return this.resident.reduce((sum, formats) => sum + (formats ? 1 : 0), 0);
  }

  get residentsOnDevice() {
    return this.on_device.reduce((sum, formats) => sum + (formats ? 1 : 0), 0);
  }

  // [cell, what] of those that changed; `what` is null where one only came or left.
  apply({ whole, experts, formats, totals, layers }) {
    if (whole) this.shape(layers.map(({ layer }) => layer), experts);
    this.formats = formats;
    this.totals = totals;
    const changes = [];
    layers.forEach((layer, row) => {
      for (const [expert, resident, ...counts] of layer.experts) {
        const cell = row * experts + expert;
        const more = {};
        COUNTS.forEach((count, i) => {
          more[count] = counts[i] - this[count][cell];
          this[count][cell] = counts[i];
        });
        this.resident[cell] = resident;
        this.on_device[cell] = counts[COUNTS.length];
        if (!whole) changes.push([cell, this.note(more)]);
      }
    });
    return changes;
  }

  note({ hits, misses, lowered, skipped, reads }) {
    const ahead = Math.max(reads - misses, 0);
    const numbers = [skipped, lowered, misses, hits, ahead];
    HAPPENINGS.forEach((what, i) => (this.seen[what] += numbers[i]));
    const most = Math.max(...numbers);
    return most > 0 ? HAPPENINGS[numbers.indexOf(most)] : null;
  }

  // "layer 3, expert 17: resident (q8), 120 hits, 4 misses, ..."
  describe(cell) {
    const layer = this.layers[Math.floor(cell / this.experts)];
    const tier = (bit) => ((this.on_device[cell] >> bit) & 1 ? " on the device" : "");
    const formats = this.formats.flatMap((format, bit) => ((this.resident[cell] >> bit) & 1 ? [format + tier(bit)] : []));
    const where = formats.length ? `resident at ${formats.join(" and ")}` : "not resident";
    const parts = [where, `${this.hits[cell]} hits`, `${this.misses[cell]} misses`, `${this.reads[cell]} reads`];
    if (this.lowered[cell]) parts.push(`${this.lowered[cell]} lowered`);
    if (this.skipped[cell]) parts.push(`${this.skipped[cell]} skipped`);
    return `Layer ${layer}, expert ${cell % this.experts}: ${parts.join(", ")}`;
  }
}

// Calls `onEvent(event)` with every event until the signal ends it, `onRefusal(error)` when the stream ends otherwise. Asks again
// then, unless it is a key that lacks.
export async function watchExperts(signal, onEvent, onRefusal) {
  while (!signal.aborted) {
    try {
      for await (const event of events(await call("/moed/experts", { signal }))) onEvent(event);
    } catch (error) {
      if (signal.aborted) return;
      onRefusal(error);
      if (error.status === 401 || error.status === 403) return;
    }
    await new Promise((resume) => setTimeout(resume, AGAIN_MILLISECONDS));
  }
}
