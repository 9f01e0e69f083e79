/** Where a ledger is kept: IndexedDB in pages and workers, or memory; an app may bring its own. */

/** A ledger as plain JSON values, and how often it was written. */
export interface Kept {
  readonly book: unknown;
  readonly version: number;
}

/**
 * One ledger for all tabs, workers and devices that share it. `save` is one step: it keeps the book durably if
 * the version is still the one that was loaded (0 where nothing was kept yet), and else changes nothing and says false.
 */
export interface LedgerStorage {
  load(): Promise<Kept | undefined>;
  save(book: unknown, version: number): Promise<boolean>;
}

/** A ledger that ends with the program: for tests, and for apps that keep `snapshot` themselves. */
export class MemoryStorage implements LedgerStorage {
  private entry: Kept | undefined;

  constructor(entry?: Kept) {
    this.entry = entry && structuredClone(entry);
  }

  async load(): Promise<Kept | undefined> {
    return this.snapshot();
  }

  async save(book: unknown, version: number): Promise<boolean> {
    const current = (this.entry?.version ?? 0) === version;
    if (current) this.entry = structuredClone({ book, version: version + 1 });
    return current;
  }

  snapshot(): Kept | undefined {
    return structuredClone(this.entry);
  }
}

const STORE = "ledger";
const ENTRY = "book";

/** A ledger in a database of this origin; versions are compared and the book is put in one transaction. */
export class IndexedDbStorage implements LedgerStorage {
  private readonly name: string;
  private opened: Promise<IDBDatabase> | undefined;

  constructor(name = "geoveil") {
    this.name = name;
  }

  async load(): Promise<Kept | undefined> {
    const transaction = (await this.database()).transaction(STORE, "readonly");
    return answer<Kept | undefined>(transaction.objectStore(STORE).get(ENTRY));
  }

  async save(book: unknown, version: number): Promise<boolean> {
    const transaction = (await this.database()).transaction(STORE, "readwrite", { durability: "strict" });
    const store = transaction.objectStore(STORE);
    const completion = new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error); // which every error ends in
    });
    completion.catch(() => undefined); // whoever awaits it is told
    const entry = await answer<Kept | undefined>(store.get(ENTRY));
    const current = (entry?.version ?? 0) === version;
    if (current) store.put({ book, version: version + 1 }, ENTRY);
    await completion; // the charge is on the disk before anything is sent
    return current;
  }

  /** Forget everything: what was reported, charged and promised. Other tabs begin anew too. */
  erase(): Promise<void> {
    this.opened = undefined;
    return answer(indexedDB.deleteDatabase(this.name)); // open connections close when they are told
  }

  private database(): Promise<IDBDatabase> {
    return (this.opened ??= this.open().catch((problem: unknown) => {
      this.opened = undefined;
      throw problem;
    }));
  }

  private async open(): Promise<IDBDatabase> {
    const request = indexedDB.open(this.name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    const database = await answer<IDBDatabase>(request);
    database.onversionchange = database.onclose = () => {
      this.opened = undefined; // opened anew at the next step
      database.close();
    };
    return database;
  }
}

function answer<Value>(request: IDBRequest): Promise<Value> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result as Value);
    request.onerror = () => reject(request.error);
  });
}
