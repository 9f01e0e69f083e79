/**
 * A map on a canvas: cells as one picture that is moved and scaled, lines behind them, scale bar, north, coordinates.
 *
 * Square cells are painted once for every change of value, one pixel each; moving the map draws that picture again, so
 * that a frame costs the same for ten cells as for sixty-five thousand. Places, at most 4,096, have a path each.
 */

import type { Pair, TangentPlane } from "../../../sdk/src/plane.ts";
import { fixed } from "../texts/language.ts";
import { type Backdrop, COVERING, drawOutlines, type Outline, outlinesOf } from "./backdrop.ts";
import { type Colour, css } from "./colours.ts";
import { type AnyCells, Places, type Shape } from "./places.ts";
import { paintCells } from "./stamp.tsx";
import type { Tiles } from "./tiles.ts";

/** A rectangle in the plane: west, south, east, north in km. */
export type Rectangle = readonly [west: number, south: number, east: number, north: number];

/** A painted area, its path in km of the plane. */
export interface Area {
  readonly path: Path2D;
  readonly colour: Colour;
}

const MARGIN = 26;
const NEAREST = 40; // times the first view
const FARTHEST = 0.25;
const WHEEL = 0.0015;
const BAR_PX = 110;

export class MapCanvas {
  plane: TangentPlane;
  /** Called where the pointer is over a cell, or over none. */
  onCell: (cell: number | undefined) => void = () => undefined;
  /** Called where the pointer is over a painted area, by its place in the list, or over none. */
  onArea: (area: number | undefined) => void = () => undefined;
  /** Called with a rectangle that was drawn. */
  onRectangle: (rectangle: Rectangle) => void = () => undefined;
  /** Whether dragging draws a rectangle instead of moving the map. */
  drawing = false;

  private readonly canvas: HTMLCanvasElement;
  private readonly context: CanvasRenderingContext2D;
  private readonly watcher: ResizeObserver;
  private readonly fit: Rectangle;
  private cells: AnyCells | undefined;
  private parts: readonly Area[] = []; // of places, which no picture of squares shows
  private picture: HTMLCanvasElement | undefined;
  private outlines: readonly Outline[] = [];
  private tiles: Tiles | undefined;
  private rectangle: Rectangle | undefined;
  private marked: number | undefined;
  private areas: readonly Area[] = [];
  private markedArea: number | undefined;
  private middle: Pair = [0, 0];
  private zoom = 1;
  private base = 1; // pixels a kilometre when all is in view
  private request = 0;
  private readonly pointers = new Map<number, Pair>();
  private from: Pair | undefined;
  private pinch = 0;

  constructor(canvas: HTMLCanvasElement, plane: TangentPlane, fit: Rectangle) {
    this.canvas = canvas;
    this.plane = plane;
    this.fit = fit;
    this.context = canvas.getContext("2d")!;
    this.home();
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(canvas);
    for (const [name, listener] of this.listeners()) canvas.addEventListener(name, listener, { passive: false });
    this.resize();
  }

  close(): void {
    this.watcher.disconnect();
    cancelAnimationFrame(this.request);
    for (const [name, listener] of this.listeners()) this.canvas.removeEventListener(name, listener);
    this.tiles?.close();
  }

  // --- What is shown

  /** Paint every cell anew; `paint` gives the colour of each, undefined for none. */
  show(cells: AnyCells, paint: (cell: number) => Colour | undefined): void {
    const places = cells instanceof Places ? cells : undefined;
    this.picture = places ? undefined : paintCells(document.createElement("canvas"), cells, paint);
    this.parts = (places?.shapes ?? []).flatMap((shape, place) => {
      const colour = paint(place);
      return colour ? [{ path: pathOf(shape), colour }] : [];
    });
    this.cells = cells;
    this.draw();
  }

  /** No cells. */
  showNothing(): void {
    this.cells = this.picture = undefined;
    this.parts = [];
    this.draw();
  }

  /** Areas over the cells, instead of them where there are any; one of them marked. */
  showAreas(areas: readonly Area[], marked: number | undefined): void {
    this.areas = areas;
    this.markedArea = marked;
    this.draw();
  }

  behind(backdrop: Backdrop | undefined): void {
    this.outlines = outlinesOf(backdrop, this.plane);
    this.draw();
  }

  under(tiles: Tiles | undefined): void {
    this.tiles?.close();
    this.tiles = tiles;
    if (tiles) tiles.onLoad = () => this.draw();
    this.draw();
  }

  select(rectangle: Rectangle | undefined): void {
    this.rectangle = rectangle;
    this.draw();
  }

  mark(cell: number | undefined): void {
    if (cell === this.marked) return;
    this.marked = cell;
    this.draw();
  }

  // --- Where it looks

  home(): void {
    const [west, south, east, north] = this.fit;
    this.middle = [(west + east) / 2, (south + north) / 2];
    this.zoom = 1;
    this.draw();
  }

  /** Move by parts of what is in view. */
  move(east: number, north: number): void {
    const perKm = this.perKm;
    this.lookAt([
      this.middle[0] + (east * this.canvas.clientWidth) / perKm,
      this.middle[1] + (north * this.canvas.clientHeight) / perKm,
    ]);
  }

  scaleBy(factor: number, around?: Pair): void {
    const held = around && this.placeOf(around);
    this.zoom = Math.min(NEAREST, Math.max(FARTHEST, this.zoom * factor));
    if (held && around) {
      const now = this.placeOf(around);
      this.lookAt([this.middle[0] + held[0] - now[0], this.middle[1] + held[1] - now[1]]);
    }
    this.draw();
  }

  private lookAt([east, north]: Pair): void {
    const [west, south, farEast, farNorth] = this.fit;
    const across = Math.max(farEast - west, farNorth - south);
    this.middle = [
      Math.min(farEast + across, Math.max(west - across, east)),
      Math.min(farNorth + across, Math.max(south - across, north)),
    ];
    this.draw();
  }

  private get perKm(): number {
    return this.base * this.zoom;
  }

  private placeOf([x, y]: Pair): Pair {
    return [
      this.middle[0] + (x - this.canvas.clientWidth / 2) / this.perKm,
      this.middle[1] - (y - this.canvas.clientHeight / 2) / this.perKm,
    ];
  }

  private pixelOf([east, north]: Pair): Pair {
    return [
      this.canvas.clientWidth / 2 + (east - this.middle[0]) * this.perKm,
      this.canvas.clientHeight / 2 - (north - this.middle[1]) * this.perKm,
    ];
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const [west, south, east, north] = this.fit;
    this.base = Math.min((width - 2 * MARGIN) / (east - west), (height - 2 * MARGIN) / (north - south));
    this.frame();
  }

  // --- Drawing

  /** Draw with the next frame, once however often it is asked. */
  draw(): void {
    this.request ||= requestAnimationFrame(() => {
      this.request = 0;
      this.frame();
    });
  }

  private frame(): void {
    const { context } = this;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const ratio = this.canvas.width / Math.max(1, width);
    const look = getComputedStyle(this.canvas);
    const ink = look.color;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.tiles?.paint(
      context,
      this.plane,
      (place) => this.pixelOf(place),
      this.placeOf([width / 2, height / 2]),
      this.perKm,
      width,
      height,
    );
    drawOutlines(context, this.outlines, "areas", this.pixelOf([0, 0]), this.perKm);
    if (this.areas.length) this.drawAreas(look, this.areas, 1.2);
    else this.drawCells(look);
    drawOutlines(context, this.outlines, "lines", this.pixelOf([0, 0]), this.perKm);
    this.drawMarkedArea(look);
    this.drawCoordinates(width, height, ink, look.backgroundColor);
    this.drawRectangles(look);
    this.drawScale(height, ink, look.backgroundColor);
    drawNorth(context, width, ink, look.backgroundColor);
  }

  private drawCells(look: CSSStyleDeclaration): void {
    const { cells, picture, context } = this;
    if (this.parts.length) {
      context.globalAlpha = this.tiles || this.outlines.length ? COVERING : 1;
      this.drawAreas(look, this.parts, 0.5);
      context.globalAlpha = 1;
    }
    if (!cells || !picture) return;
    const [x, y] = this.pixelOf([cells.corner[0], cells.corner[1] + cells.heightKm]);
    context.imageSmoothingEnabled = false;
    context.globalAlpha = this.tiles || this.outlines.length ? COVERING : 1;
    context.drawImage(picture, x, y, cells.widthKm * this.perKm, cells.heightKm * this.perKm);
    context.globalAlpha = 1;
  }

  private drawAreas(look: CSSStyleDeclaration, areas: readonly Area[], edge: number): void {
    const { context, perKm } = this;
    context.save();
    context.transform(perKm, 0, 0, -perKm, ...this.pixelOf([0, 0]));
    context.lineJoin = "round";
    context.lineWidth = edge / perKm;
    context.strokeStyle = look.backgroundColor;
    for (const { path, colour } of areas) {
      context.fillStyle = css(colour);
      context.fill(path, "evenodd");
      context.stroke(path);
    }
    context.restore();
  }

  private drawMarkedArea(look: CSSStyleDeclaration): void {
    const marked = this.markedArea === undefined ? undefined : this.areas[this.markedArea];
    if (marked) this.outline(marked.path, look, 4);
  }

  private outline(path: Path2D, look: CSSStyleDeclaration, width: number): void {
    const { context, perKm } = this;
    context.save();
    context.transform(perKm, 0, 0, -perKm, ...this.pixelOf([0, 0]));
    context.lineJoin = "round";
    context.lineWidth = width / perKm;
    context.strokeStyle = look.getPropertyValue("--map-selection") || look.color;
    context.stroke(path);
    context.restore();
  }

  /** The area at a pixel. */
  private areaAt(pixel: Pair): number | undefined {
    const { context } = this;
    const [east, north] = this.placeOf(pixel);
    context.save();
    context.resetTransform();
    const area = this.areas.findIndex(({ path }) => context.isPointInPath(path, east, north, "evenodd"));
    context.restore();
    return area < 0 ? undefined : area;
  }

  private drawCoordinates(width: number, height: number, ink: string, ground: string): void {
    const { context } = this;
    const [lat, lng] = this.plane.toLatLng(this.middle);
    const step = niceStep((80 / this.perKm / 111) * 1.2);
    const stepLng = niceStep((110 / this.perKm / (111 * Math.max(0.05, Math.cos((lat * Math.PI) / 180)))) * 1.2);
    const decimals = Math.max(0, Math.ceil(-Math.log10(Math.min(step, stepLng))));
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = ink;
    context.strokeStyle = ground;
    context.lineWidth = 3;
    const write = (degrees: string, x: number, y: number): void => {
      context.strokeText(degrees, x, y); // or it could not be read on a cell of the colour of ink
      context.fillText(degrees, x, y);
    };
    for (let n = -4; n <= 4; n++) {
      const atLng = (Math.round(lng / stepLng) + n) * stepLng;
      const [x] = this.pixelOf(this.plane.toPlane(lat, atLng, false));
      if (x > 60 && x < width - 40) {
        context.fillRect(x - 0.5, 0, 1, 5);
        context.textAlign = "center";
        const turned = atLng > 180 ? atLng - 360 : atLng < -180 ? atLng + 360 : atLng;
        write(`${fixed(turned, decimals)}°`, x, 17);
      }
      const atLat = (Math.round(lat / step) + n) * step;
      const [, y] = this.pixelOf(this.plane.toPlane(atLat, lng, false));
      if (y > 30 && y < height - 50) {
        context.fillRect(0, y - 0.5, 5, 1);
        context.textAlign = "left";
        write(`${fixed(atLat, decimals)}°`, 8, y + 4);
      }
    }
  }

  private drawRectangles(look: CSSStyleDeclaration): void {
    const { context, cells } = this;
    const accent = look.getPropertyValue("--map-selection") || look.color;
    const outline = ([west, south, east, north]: Rectangle, filled: boolean): void => {
      const [x, y] = this.pixelOf([west, north]);
      const size = [(east - west) * this.perKm, (north - south) * this.perKm] as const;
      context.lineWidth = 2.5;
      context.strokeStyle = accent;
      if (filled) {
        context.globalAlpha = 0.12;
        context.fillStyle = accent;
        context.fillRect(x, y, ...size);
        context.globalAlpha = 1;
      }
      context.strokeRect(x, y, ...size);
    };
    if (this.rectangle) outline(this.rectangle, true);
    if (this.marked !== undefined && cells instanceof Places) {
      this.outline(pathOf(cells.shapes[this.marked]!), look, 2.5);
    } else if (this.marked !== undefined && cells) {
      const [east, north] = cells.centreKm(this.marked);
      const half = cells.cellKm / 2;
      outline([east - half, north - half, east + half, north + half], false);
    }
  }

  private drawScale(height: number, ink: string, ground: string): void {
    const { context } = this;
    const km = niceStep(BAR_PX / this.perKm / 1.3);
    const size = km * this.perKm;
    const words = km < 1 ? `${Math.round(km * 1000)} m` : `${km} km`;
    const [x, y] = [14, height - 16];
    context.globalAlpha = 0.82;
    context.fillStyle = ground;
    context.fillRect(x - 7, y - 20, size + 14, 29);
    context.globalAlpha = 1;
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y - 5);
    context.lineTo(x, y);
    context.lineTo(x + size, y);
    context.lineTo(x + size, y - 5);
    context.stroke();
    context.font = "600 12px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText(words, x + size / 2, y - 6);
  }

  /** The map as a picture, as it stands. */
  picturePng(): Promise<Blob | null> {
    this.frame();
    const out = document.createElement("canvas");
    out.width = this.canvas.width;
    out.height = this.canvas.height;
    const context = out.getContext("2d")!;
    context.fillStyle = getComputedStyle(this.canvas).backgroundColor;
    context.fillRect(0, 0, out.width, out.height);
    context.drawImage(this.canvas, 0, 0);
    return new Promise((resolve) => out.toBlob(resolve, "image/png"));
  }

  // --- Hands

  private listeners(): readonly (readonly [string, EventListener])[] {
    return (this.held ??= [
      ["pointerdown", this.down],
      ["pointermove", this.over],
      ["pointerup", this.up],
      ["pointercancel", this.up],
      ["pointerleave", () => this.pointers.size || this.onCell(undefined)],
      ["wheel", this.wheel],
    ].map(([name, listener]) => [name, listener] as [string, EventListener]));
  }
  private held: readonly (readonly [string, EventListener])[] | undefined;

  private readonly down = (event: PointerEvent): void => {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.pinch = this.spread();
    if (this.drawing && this.pointers.size === 1) this.from = this.placeOf([event.offsetX, event.offsetY]);
    else this.from = undefined;
  };

  private readonly over = (event: PointerEvent): void => {
    const now: Pair = [event.offsetX, event.offsetY];
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.pointAt(now);
    this.pointers.set(event.pointerId, now);
    if (this.from) {
      this.select(rectangleOf(this.from, this.placeOf(now)));
    } else if (this.pointers.size === 1) {
      this.lookAt([
        this.middle[0] - (now[0] - before[0]) / this.perKm,
        this.middle[1] + (now[1] - before[1]) / this.perKm,
      ]);
    } else {
      const spread = this.spread();
      if (this.pinch) this.scaleBy(spread / this.pinch, now);
      this.pinch = spread;
    }
  };

  private pointAt(now: Pair): void {
    this.onCell(this.cells?.at(this.placeOf(now)));
    if (this.areas.length) this.onArea(this.areaAt(now));
  }

  private readonly up = (event: PointerEvent): void => {
    const now: Pair = [event.offsetX, event.offsetY];
    if (this.from && this.pointers.has(event.pointerId) && event.type === "pointerup") {
      const rectangle = rectangleOf(this.from, this.placeOf(now));
      const size = Math.max(rectangle[2] - rectangle[0], rectangle[3] - rectangle[1]) * this.perKm;
      if (size > 6) this.onRectangle(rectangle);
    } else if (event.type === "pointerup" && this.pointers.size === 1) {
      this.pointAt(now);
    }
    this.from = undefined;
    this.pointers.delete(event.pointerId);
    this.pinch = this.spread();
  };

  private readonly wheel = (event: WheelEvent): void => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return; // the page scrolls
    event.preventDefault();
    this.scaleBy(Math.exp(-event.deltaY * WHEEL), [event.offsetX, event.offsetY]);
  };

  private spread(): number {
    const [one, other] = [...this.pointers.values()];
    return one && other ? Math.hypot(one[0] - other[0], one[1] - other[1]) : 0;
  }
}

function pathOf(shape: Shape): Path2D {
  const path = new Path2D();
  shape.forEach(([east, north], at) => (at ? path.lineTo(east, north) : path.moveTo(east, north)));
  path.closePath();
  return path;
}

function rectangleOf([a, b]: Pair, [c, d]: Pair): Rectangle {
  return [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)];
}

function drawNorth(context: CanvasRenderingContext2D, width: number, ink: string, ground: string): void {
  const [x, y] = [width - 22, 44];
  context.globalAlpha = 0.82;
  context.fillStyle = ground;
  context.beginPath();
  context.arc(x, y - 4, 17, 0, 2 * Math.PI);
  context.fill();
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.beginPath();
  context.moveTo(x, y - 17);
  context.lineTo(x + 5, y - 5);
  context.lineTo(x - 5, y - 5);
  context.fill();
  context.font = "600 11px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText("N", x, y + 7);
}

/** 1, 2 or 5 times a power of ten, not above a number. */
export function niceStep(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most));
  const lead = most / power;
  return Number(((lead >= 5 ? 5 : lead >= 2 ? 2 : 1) * power).toPrecision(1));
}
