import { signal } from '@preact/signals';
import { isAborted } from '../../../api';
import { JsonError } from '../../../json';
import { type Beginning, itemsOfFile, type Settings } from './file';
import { poster, type Report, write } from './send';
import { t } from './texts';
import type { Column } from './types';
import { FormatError } from './values';

/** An import under way, or done. */
export interface State {
  /** Bytes of the file that were read. */
  read: number;
  report: Report;
  /** Cells that are not of their column's type. */
  misfits: Map<string, number>;
  is: 'running' | 'done' | 'stopped' | 'failed';
  error?: unknown;
}

export class Job {
  readonly state = signal<State>({
    read: 0,
    report: { written: 0, refused: new Map() },
    misfits: new Map(),
    is: 'running',
  });
  private readonly control = new AbortController();

  constructor(
    private readonly db: string,
    private readonly file: File,
  ) {}

  stop(): void {
    this.control.abort();
  }

  async run(beginning: Beginning, settings: Settings, columns: Column[]): Promise<void> {
    const { report, misfits } = this.state.value;
    const words = { cells: t().cells, object: t().object, id: t().noId, stub: t().stub };
    const items = itemsOfFile(
      this.file,
      beginning,
      settings,
      columns,
      (read) => this.change({ read }),
      ({ name }) => misfits.set(name, (misfits.get(name) ?? 0) + 1),
    );
    try {
      await write(items, poster(this.db, this.control.signal), report, (of) => words[of]);
      this.change({ is: 'done' });
    } catch (error) {
      this.change(isAborted(error) ? { is: 'stopped' } : { is: 'failed', error });
    }
  }

  /** What is shown of it is a copy: the report itself grows. */
  private change(to: Partial<State>): void {
    this.state.value = { ...this.state.value, ...to };
  }
}

/** What a file has wrong, in words; `undefined` for other errors. */
export function mistakeOf(error: unknown): string | undefined {
  if (error instanceof FormatError || error instanceof JsonError) return t().notJson;
  // Of a decoder that is given other bytes.
  return error instanceof TypeError ? t().notEncoded : undefined;
}
