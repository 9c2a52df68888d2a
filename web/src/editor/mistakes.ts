import { syntaxTree } from '@codemirror/language';
import {
  type EditorState,
  type Extension,
  StateEffect,
  StateField,
  type Text,
} from '@codemirror/state';
import {
  Decoration,
  type DecorationSet,
  EditorView,
  type Panel,
  showPanel,
  ViewPlugin,
  type ViewUpdate,
} from '@codemirror/view';
import { JsonError, parse } from '../json';
import { inLine, mistakeWords } from '../ui/mistakes';
import { javascriptLanguage } from './javascript';
import { say } from './texts';

/** A mistake in the text: its line counts from 1. */
export interface Mistake {
  line: number;
  column?: number;
  text: string;
}

interface Mark {
  from: number;
  to: number;
  text: string;
}

/** Those that were found here, and those that somebody else told of. */
interface Marks {
  found: DecorationSet;
  told: DecorationSet;
}

/** JSON of this length is checked while it is typed. */
const CHECKED_MAX = 1_000_000;
const PAUSE_MS = 500;

const setMarks = StateEffect.define<Partial<Marks>>();

const marks = StateField.define<Marks>({
  create: () => ({ found: Decoration.none, told: Decoration.none }),
  update: (old, { changes, effects, docChanged }) => {
    const kept = docChanged ? { found: old.found.map(changes), told: old.told.map(changes) } : old;
    return Object.assign({}, kept, ...effects.flatMap((e) => (e.is(setMarks) ? [e.value] : [])));
  },
  provide: (field) => [
    EditorView.decorations.from(field, ({ found }) => found),
    EditorView.decorations.from(field, ({ told }) => told),
    showPanel.from(field, ({ found }) => (found.size > 0 ? panel : null)),
  ],
});

/**
 * Says in words, below the text, what was found here first; what others told they say themselves.
 */
function panel(view: EditorView): Panel {
  const dom = document.createElement('div');
  dom.className = 'cm-mistake-words';
  dom.setAttribute('role', 'status');
  const show = (state: EditorState) => {
    const { from, value } = state.field(marks).found.iter();
    dom.textContent = value
      ? `${inLine(state.doc.lineAt(from).number)}: ${(value.spec as Mark).text}`
      : '';
  };
  show(view.state);
  return { dom, update: ({ state }) => show(state) };
}

function setOf(all: Mark[], length: number): DecorationSet {
  return Decoration.set(
    all.flatMap((mark) => {
      const [from, to] =
        mark.from < mark.to
          ? [mark.from, mark.to]
          : [Math.max(0, mark.from - 1), Math.min(length, mark.from + 1)];
      return from < to
        ? [
            Decoration.mark({
              class: 'cm-mistake',
              attributes: { title: mark.text },
              text: mark.text,
            }).range(from, to),
          ]
        : [];
    }),
    true,
  );
}

/** Marks what somebody else found: the server. */
export function tell(view: EditorView, mistakes: Mistake[]): void {
  const { doc } = view.state;
  const placed = mistakes.map(({ line: number, column = 1, text }) => {
    const line = doc.line(Math.min(Math.max(1, number), doc.lines));
    return { from: Math.min(line.to, line.from + Math.max(0, column - 1)), to: line.to, text };
  });
  if (placed.length > 0 || view.state.field(marks).told.size > 0)
    view.dispatch({ effects: setMarks.of({ told: setOf(placed, doc.length) }) });
}

/** Checks the text whenever its writer pauses. */
export function checked(mode: 'json' | 'javascript' | 'text'): Extension {
  const check =
    mode === 'json' ? jsonMistakes : mode === 'javascript' ? functionMistakes : undefined;
  if (!check) return marks;
  class Checker {
    private timer = 0;

    constructor(private readonly view: EditorView) {
      this.wait();
    }

    update({ docChanged }: ViewUpdate): void {
      if (docChanged) this.wait();
    }

    destroy(): void {
      clearTimeout(this.timer);
    }

    private wait(): void {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.look(), PAUSE_MS);
    }

    private look(): void {
      const { state } = this.view;
      const all = check?.(state) ?? [];
      if (all.length > 0 || state.field(marks).found.size > 0)
        this.view.dispatch({ effects: setMarks.of({ found: setOf(all, state.doc.length) }) });
    }
  }
  return [marks, ViewPlugin.fromClass(Checker)];
}

function jsonMistakes({ doc }: EditorState): Mark[] {
  if (doc.length > CHECKED_MAX || doc.length === 0) return [];
  try {
    parse(doc.toString());
    return [];
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return [
      {
        from: Math.min(error.at, doc.length),
        to: Math.min(error.at + 1, doc.length),
        text: mistakeWords()[error.problem],
      },
    ];
  }
}

function functionMistakes(state: EditorState): Mark[] {
  const { doc } = state;
  const at = unreadable(syntaxTree(state), (from, to) => doc.sliceString(from, to));
  return at === undefined
    ? []
    : [
        {
          from: Math.min(at, lastOf(doc)),
          to: Math.min(at + 1, doc.length),
          text: say().unreadable,
        },
      ];
}

function lastOf(doc: Text): number {
  return Math.max(0, doc.length - 1);
}

/**
 * Where the grammar first finds no sense. A function without a name is one here, and is none as a
 * statement.
 */
function unreadable(
  tree: ReturnType<typeof syntaxTree>,
  slice: (from: number, to: number) => string,
): number | undefined {
  let at: number | undefined;
  tree.iterate({
    enter: ({ type, from }) => {
      if (
        type.isError &&
        at === undefined &&
        !/\bfunction\s*\*?\s*$/.test(slice(Math.max(0, from - 24), from))
      )
        at = from;
      return at === undefined;
    },
  });
  return at;
}

/** The line of a function's text in which it stops being JavaScript; `undefined` where it is. */
export function lineOfMistake(source: string): number | undefined {
  const at = unreadable(javascriptLanguage.parser.parse(source), (from, to) =>
    source.slice(from, to),
  );
  return at === undefined ? undefined : source.slice(0, at).split('\n').length;
}
