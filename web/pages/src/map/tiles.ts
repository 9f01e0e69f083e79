/** Pictures of a tile server that the operator has chosen, behind the cells; without one nothing is asked for. */

import type { Pair, TangentPlane } from "../../../sdk/src/plane.ts";

const SIZE = 256;
const MOST_KEPT = 160;
const MOST_AT_ONCE = 48;

export class Tiles {
  onLoad: () => void = () => undefined;
  private readonly address: string;
  private readonly kept = new Map<string, HTMLImageElement>();

  /** An address with {z}, {x} and {y}. */
  constructor(address: string) {
    this.address = address;
  }

  close(): void {
    this.onLoad = () => undefined;
    this.kept.clear();
  }

  /** Paint the tiles in view: each is bent onto the plane by its corners, which within a city is exact to a pixel. */
  paint(
    context: CanvasRenderingContext2D,
    plane: TangentPlane,
    pixelOf: (place: Pair) => Pair,
    middle: Pair,
    perKm: number,
    width: number,
    height: number,
  ): void {
    const [lat, lng] = plane.toLatLng(middle);
    const kmAround = 40_075 * Math.cos((lat * Math.PI) / 180);
    const z = Math.max(0, Math.min(19, Math.round(Math.log2((perKm * kmAround) / SIZE))));
    const count = 2 ** z;
    const [x, y] = [columnOf(lng, count), rowOf(lat, count)];
    const reach = Math.ceil(Math.max(width, height) / 2 / ((perKm * kmAround) / count)) + 1;
    let asked = 0;
    for (let row = Math.floor(y) - reach; row <= Math.floor(y) + reach; row++) {
      for (let column = Math.floor(x) - reach; column <= Math.floor(x) + reach; column++) {
        if (row < 0 || row >= count || ++asked > MOST_AT_ONCE * 2) continue;
        const image = this.tile(z, ((column % count) + count) % count, row);
        if (!image.complete || !image.naturalWidth) continue;
        const corner = (dx: number, dy: number): Pair =>
          pixelOf(plane.toPlane(latOf(row + dy, count), lngOf(column + dx, count), false));
        const [left, top] = corner(0, 0);
        const [right, rightTop] = corner(1, 0);
        const [below, bottom] = corner(0, 1);
        context.save();
        context.transform(
          (right - left) / SIZE,
          (rightTop - top) / SIZE,
          (below - left) / SIZE,
          (bottom - top) / SIZE,
          left,
          top,
        );
        context.drawImage(image, 0, 0, SIZE + 0.5, SIZE + 0.5);
        context.restore();
      }
    }
  }

  private tile(z: number, x: number, y: number): HTMLImageElement {
    const address = this.address.replace("{z}", `${z}`).replace("{x}", `${x}`).replace("{y}", `${y}`);
    let image = this.kept.get(address);
    if (!image) {
      if (this.kept.size >= MOST_KEPT) this.kept.delete(this.kept.keys().next().value!);
      image = new Image();
      image.crossOrigin = "anonymous"; // or the map could not be saved as a picture
      image.referrerPolicy = "no-referrer";
      image.onload = () => this.onLoad();
      image.src = address;
      this.kept.set(address, image);
    }
    return image;
  }
}

function columnOf(lng: number, count: number): number {
  return ((lng + 180) / 360) * count;
}

function rowOf(lat: number, count: number): number {
  const sine = Math.sin((lat * Math.PI) / 180);
  return (0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)) * count;
}

function lngOf(column: number, count: number): number {
  return (column / count) * 360 - 180;
}

function latOf(row: number, count: number): number {
  return (Math.atan(Math.sinh(Math.PI * (1 - (2 * row) / count))) * 180) / Math.PI;
}
