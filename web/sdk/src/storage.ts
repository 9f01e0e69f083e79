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
    this.entry = structuredClone(entry);
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

/**
 * A ledger in a database of this origin; versions are compared and the book is put in one transaction. It is opened
 * anew for every step: a page that a browser keeps asleep to go back to would hold it open, and nothing could erase it.
 */
export class IndexedDbStorage implements LedgerStorage {
  private readonly name: string;

  constructor(name = "geoveil") {
    this.name = name;
  }

  async load(): Promise<Kept | undefined> {
    const store = (await this.begin("readonly")).objectStore(STORE);
    return answer<Kept | undefined>(store.get(ENTRY));
  }

  async save(book: unknown, version: number): Promise<boolean> {
    const transaction = await this.begin("readwrite");
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
    return answer(indexedDB.deleteDatabase(this.name)); // after the steps that others have begun
  }

  private async begin(mode: IDBTransactionMode): Promise<IDBTransaction> {
    const request = indexedDB.open(this.name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    const database = await answer<IDBDatabase>(request);
    try {
      return database.transaction(STORE, mode, { durability: "strict" });
    } finally {
      database.close(); // as soon as the transaction has ended
    }
  }
}

function answer<Value>(request: IDBRequest): Promise<Value> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result as Value);
    request.onerror = () => reject(request.error);
  });
}
