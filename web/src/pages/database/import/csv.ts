/** Delimiters that are detected. The first one is taken where none occurs. */
export const DELIMITERS = [',', ';', '\t', '|'] as const;
export type Delimiter = (typeof DELIMITERS)[number];

const SAMPLE_LINES = 20;

/** The delimiter that divides the first lines most evenly. */
export function delimiterOf(start: string): Delimiter {
  let best: Delimiter = ',';
  let most = [0, 0];
  for (const delimiter of DELIMITERS) {
    const rows = new CsvReader(delimiter).push(`${start}\n`).slice(0, SAMPLE_LINES);
    const first = (rows[0]?.length ?? 0) - 1;
    if (first < 1) continue;
    const same = rows.filter((row) => row.length - 1 === first).length;
    const [sameMost = 0, firstMost = 0] = most;
    if (same > sameMost || (same === sameMost && first > firstMost)) {
      best = delimiter;
      most = [same, first];
    }
  }
  return best;
}

/** Reads CSV piece by piece. Empty lines are skipped. */
export class CsvReader {
  private row: string[] = [];
  private cell = '';
  /** Where the next character stands; `quote` is behind a quote within quotes. */
  private state: 'start' | 'plain' | 'quoted' | 'quote' = 'start';

  constructor(private readonly delimiter: string) {}

  /** The rows that are complete. */
  push(text: string): string[][] {
    const rows: string[][] = [];
    for (const character of text) {
      if (this.state === 'quoted') {
        if (character === '"') this.state = 'quote';
        else this.cell += character;
      } else if (character === '"' && this.state !== 'plain') {
        if (this.state === 'quote') this.cell += '"';
        this.state = 'quoted';
      } else if (character === this.delimiter) this.endCell();
      else if (character === '\n') this.endRow(rows);
      else if (this.state !== 'quote' || character !== '\r') {
        this.cell += character;
        this.state = 'plain';
      }
    }
    return rows;
  }

  /** The row without a line break at the end of the text. */
  end(): string[][] {
    const rows: string[][] = [];
    this.endRow(rows);
    return rows;
  }

  private endCell(): void {
    this.row.push(this.cell);
    this.cell = '';
    this.state = 'start';
  }

  private endRow(rows: string[][]): void {
    if (this.state === 'plain' && this.cell.endsWith('\r')) this.cell = this.cell.slice(0, -1);
    const isBlank = this.row.length === 0 && this.cell === '' && this.state !== 'quote';
    this.endCell();
    if (!isBlank) rows.push(this.row);
    this.row = [];
  }
}
