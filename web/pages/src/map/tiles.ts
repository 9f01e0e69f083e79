/** Pictures of a tile server that the operator has chosen, behind the cells; without one nothing is asked for. */

import type { Pair, TangentPlane } from "../../../sdk/src/plane.ts";

const SIZE = 256;
const MOST_IMAGES = 160;
const MOST_AT_ONCE = 120;
const DEEPEST = 19;

export class Tiles {
  onLoad: () => void = () => undefined;
  private readonly address: string;
  private readonly images = new Map<string, HTMLImageElement>();

  /** An address with {z}, {x} and {y}. */
  constructor(address: string) {
    this.address = address;
  }

  close(): void {
    this.onLoad = () => undefined;
    this.images.clear();
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
    let z = Math.max(0, Math.min(DEEPEST, Math.round(Math.log2((perKm * kmAround) / SIZE))));
    const inView = (pixels: number): number => (pixels * 2 ** z) / (perKm * kmAround); // in tiles
    while (z > 0 && (inView(width) + 1) * (inView(height) + 1) > MOST_AT_ONCE) z--;
    const count = 2 ** z;
    const [x, y] = [columnOf(lng, count), rowOf(lat, count)];
    const [across, up] = [inView(width) / 2, inView(height) / 2];
    for (let row = Math.max(0, Math.floor(y - up)); row <= Math.min(count - 1, Math.floor(y + up)); row++) {
      for (let column = Math.floor(x - across); column <= Math.floor(x + across); column++) {
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
    let image = this.images.get(address);
    if (!image) {
      if (this.images.size >= MOST_IMAGES) this.images.delete(this.images.keys().next().value!);
      image = new Image();
      image.crossOrigin = "anonymous"; // or the map could not be saved as a picture
      image.referrerPolicy = "no-referrer";
      image.onload = () => this.onLoad();
      image.src = address;
      this.images.set(address, image);
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
