import { computed, signal } from '@preact/signals';
import { ApiError, LostError, url } from '../../../api';
import { isExpired, isOver, renewed } from '../../../api/session';
import type { Draft } from './draft';

export interface Upload {
  id: number;
  name: string;
  file: File;
  /** 0 to 1. */
  done: number;
  state: 'waiting' | 'sending' | 'failed' | 'stopped';
  error?: unknown;
}

/**
 * Files on their way into a document: one after the other, as each needs the revision that the one
 * before made.
 */
export class Uploads {
  readonly all = signal<Upload[]>([]);
  readonly isBusy = computed(() =>
    this.all.value.some(({ state }) => state === 'waiting' || state === 'sending'),
  );
  private ids = 0;
  private isRunning = false;
  private control: AbortController | undefined;

  constructor(
    private readonly draft: Draft,
    private readonly onDone: (name: string) => void,
  ) {}

  add(files: { name: string; file: File }[]): void {
    const fresh = files.map(
      ({ name, file }): Upload => ({ id: ++this.ids, name, file, done: 0, state: 'waiting' }),
    );
    this.all.value = [...this.all.value, ...fresh];
    void this.run();
  }

  again({ id, name, file }: Upload): void {
    this.forget(id);
    this.add([{ name, file }]);
  }

  stop(id: number): void {
    const upload = this.all.value.find((each) => each.id === id);
    if (upload?.state === 'sending') this.control?.abort();
    else this.forget(id);
  }

  /** The page is left. */
  end(): void {
    this.all.value = [];
    this.control?.abort();
  }

  forget(id: number): void {
    this.all.value = this.all.value.filter((each) => each.id !== id);
  }

  private change(id: number, to: Partial<Upload>): void {
    this.all.value = this.all.value.map((each) => (each.id === id ? { ...each, ...to } : each));
  }

  private async run(): Promise<void> {
    if (this.isRunning) return;
    this.isRunning = true;
    for (let next = this.next(); next; next = this.next()) await this.one(next);
    this.isRunning = false;
  }

  private next(): Upload | undefined {
    return this.all.value.find(({ state }) => state === 'waiting');
  }

  private async one({ id, name, file }: Upload): Promise<void> {
    this.control = new AbortController();
    this.change(id, { state: 'sending' });
    try {
      const { signal } = this.control;
      const to = `${this.draft.path}/${encodeURIComponent(name)}`;
      await this.draft.withRev(name, (rev) =>
        transmit(url(to, { rev }), file, signal, (done) => this.change(id, { done })),
      );
      this.forget(id);
      this.onDone(name);
    } catch (error) {
      this.change(
        id,
        this.control.signal.aborted ? { state: 'stopped' } : { state: 'failed', error },
      );
    }
  }
}

/**
 * `fetch` does not tell how much was sent. The file is read as it is sent, so that it may be larger
 * than memory.
 */
async function transmit(
  to: URL,
  file: File,
  signal: AbortSignal,
  onProgress: (done: number) => void,
): Promise<string> {
  while (true) {
    const { status, text, requestId } = await transmitOnce(to, file, signal, onProgress);
    const told = parsed(text);
    if (status < 300 && told.rev) return told.rev;
    if (status === 401 && (await isOver())) {
      isExpired.value = true;
      await renewed(signal);
    } else
      throw new ApiError(
        status,
        told.error ?? String(status),
        told.reason ?? text.slice(0, 500),
        requestId,
      );
  }
}

function transmitOnce(
  to: URL,
  file: File,
  signal: AbortSignal,
  onProgress: (done: number) => void,
): Promise<{ status: number; text: string; requestId: string | null }> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('PUT', to);
    request.setRequestHeader('accept', 'application/json');
    request.setRequestHeader('content-type', file.type || 'application/octet-stream');
    let shown = 0;
    request.upload.onprogress = ({ loaded, total }) => {
      if (loaded < total && performance.now() - shown < 100) return;
      shown = performance.now();
      onProgress(loaded / Math.max(1, total));
    };
    request.onload = () =>
      resolve({
        status: request.status,
        text: request.responseText,
        requestId: request.getResponseHeader('x-couch-request-id'),
      });
    request.onerror = () => reject(new LostError());
    request.onabort = () => reject(new DOMException('', 'AbortError'));
    signal.addEventListener('abort', () => request.abort());
    request.send(file);
  });
}

function parsed(text: string): { rev?: string; error?: string; reason?: string } {
  try {
    return JSON.parse(text) as { rev?: string };
  } catch {
    return {};
  }
}
