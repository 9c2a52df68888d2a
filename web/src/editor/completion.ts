import { type Extension, Prec, StateEffect, StateField, type Transaction } from '@codemirror/state';
import { EditorView, keymap, ViewPlugin, type ViewUpdate } from '@codemirror/view';

/** Something that can be written where the caret is. */
export interface Proposal {
  label: string;
  detail?: string;
  insert: string;
  /** Where the caret is after it, from its end backwards. */
  back?: number;
}

export interface Proposals {
  /** What takes the place of the text between them. */
  from: number;
  to: number;
  all: Proposal[];
}

/** What can be written at a place of a text; `undefined` for nothing. */
export type Complete = (text: string, at: number) => Proposals | undefined;

type Shown = (Proposals & { active: number }) | undefined;

/** In longer texts, nothing is proposed. */
const TEXT_MAX = 50_000;
const EDGE_PX = 8;

const show = StateEffect.define<Shown>();
let ids = 0;

/**
 * A list of proposals below the caret, while a name or a value is typed, or by Ctrl+Space. Arrow
 * keys choose, Enter and Tab take, Escape closes.
 */
export function completion(complete: Complete, label: string): Extension {
  const id = `proposals-${++ids}`;
  const shown = StateField.define<Shown>({
    create: () => undefined,
    update: (old, transaction) => {
      for (const effect of transaction.effects) if (effect.is(show)) return effect.value;
      if (transaction.docChanged) return typed(complete, transaction, old !== undefined);
      return transaction.selection ? undefined : old;
    },
    provide: (field) =>
      EditorView.contentAttributes.compute([field], (state): Record<string, string> => {
        const active = state.field(field)?.active;
        return active === undefined
          ? { 'aria-autocomplete': 'list' }
          : {
              'aria-autocomplete': 'list',
              'aria-controls': id,
              'aria-activedescendant': `${id}-${active}`,
            };
      }),
  });
  const take = (view: EditorView, index?: number) => {
    const now = view.state.field(shown);
    const taken = now?.all[index ?? now.active];
    if (!now || !taken) return false;
    const { insert, back = 0 } = taken;
    view.dispatch({
      changes: { from: now.from, to: now.to, insert },
      selection: { anchor: now.from + insert.length - back },
      userEvent: 'input.complete',
      scrollIntoView: true,
    });
    return true;
  };
  const move = (by: number) => (view: EditorView) => {
    const now = view.state.field(shown);
    if (!now) return false;
    const active = (now.active + by + now.all.length) % now.all.length;
    view.dispatch({ effects: show.of({ ...now, active }) });
    return true;
  };
  const close = (view: EditorView) => {
    if (!view.state.field(shown)) return false;
    view.dispatch({ effects: show.of(undefined) });
    return true;
  };
  const open = (view: EditorView) => {
    const found = complete(view.state.doc.toString(), view.state.selection.main.head);
    view.dispatch({ effects: show.of(found && { ...found, active: 0 }) });
    return true;
  };
  const keys = [
    { key: 'ArrowDown', run: move(1) },
    { key: 'ArrowUp', run: move(-1) },
    { key: 'Enter', run: (view: EditorView) => take(view) },
    { key: 'Tab', run: (view: EditorView) => take(view) },
    { key: 'Escape', run: close },
    { key: 'Ctrl-Space', run: open },
    // The text is run, too.
    { key: 'Mod-Enter', run: (view: EditorView) => close(view) && false },
  ];
  return [
    shown,
    Prec.highest(keymap.of(keys)),
    list(id, label, shown, take),
    looks,
    EditorView.domEventHandlers({ blur: (_, view) => close(view) && false }),
  ];
}

/** What is proposed while somebody types. */
function typed(complete: Complete, transaction: Transaction, isOpen: boolean): Shown {
  const { newDoc, newSelection } = transaction;
  const isTyped =
    transaction.isUserEvent('input.type') || (isOpen && transaction.isUserEvent('delete'));
  const { head, empty } = newSelection.main;
  if (!isTyped || !empty || newDoc.length > TEXT_MAX) return undefined;
  const found = complete(newDoc.toString(), head);
  // Where nothing was begun, it is proposed by Ctrl+Space only.
  if (!found || found.from === head) return undefined;
  const [first, second] = found.all;
  const isThere = !second && newDoc.sliceString(found.from, found.to) === first?.insert.trim();
  return isThere ? undefined : { ...found, active: 0 };
}

function rowOf(id: string, { label, detail = '' }: Proposal, isActive: boolean): HTMLElement {
  const row = document.createElement('li');
  row.id = id;
  row.setAttribute('role', 'option');
  row.setAttribute('aria-selected', String(isActive));
  const more = document.createElement('small');
  more.textContent = detail;
  row.append(label, more);
  return row;
}

/** Shows the proposals, before everything else in the window. */
function list(
  id: string,
  label: string,
  shown: StateField<Shown>,
  take: (view: EditorView, index: number) => boolean,
): Extension {
  return ViewPlugin.fromClass(
    class {
      private readonly dom = document.createElement('ul');

      constructor(private readonly view: EditorView) {
        this.dom.className = 'cm-proposals';
        this.dom.id = id;
        this.dom.setAttribute('role', 'listbox');
        // It scrolls.
        this.dom.tabIndex = 0;
        this.dom.setAttribute('aria-label', label);
        this.dom.hidden = true;
        this.dom.addEventListener('mousedown', this.press);
        view.scrollDOM.addEventListener('scroll', this.place);
        addEventListener('scroll', this.place, true);
        view.dom.append(this.dom);
      }

      update({ startState, state, geometryChanged }: ViewUpdate): void {
        if (state.field(shown) !== startState.field(shown)) this.draw();
        else if (geometryChanged) this.place();
      }

      destroy(): void {
        removeEventListener('scroll', this.place, true);
        this.dom.remove();
      }

      private readonly press = (event: MouseEvent) => {
        // The text keeps the focus.
        event.preventDefault();
        const at = (event.target as Element).closest('li');
        const index = [...this.dom.children].indexOf(at as Element);
        if (index >= 0) take(this.view, index);
      };

      private readonly place = () => {
        const { view, dom } = this;
        const from = view.state.field(shown)?.from;
        if (from === undefined) return;
        view.requestMeasure({
          key: id,
          read: () => view.coordsAtPos(from),
          write: (at) => {
            dom.hidden = !at;
            if (!at) return;
            const { offsetWidth: width, offsetHeight: height } = dom;
            const isBelow = at.bottom + height <= innerHeight || at.top < height;
            const left = Math.max(EDGE_PX, Math.min(at.left, innerWidth - width - EDGE_PX));
            dom.style.left = `${left}px`;
            dom.style.top = `${isBelow ? at.bottom : at.top - height}px`;
          },
        });
      };

      private draw(): void {
        const now = this.view.state.field(shown);
        this.dom.hidden = !now;
        this.dom.replaceChildren(
          ...(now?.all ?? []).map((each, n) => rowOf(`${id}-${n}`, each, n === now?.active)),
        );
        if (!now) return;
        this.place();
        this.dom.children[now.active]?.scrollIntoView({ block: 'nearest' });
      }
    },
  );
}

const looks = EditorView.baseTheme({
  '.cm-proposals': {
    position: 'fixed',
    zIndex: '20',
    boxSizing: 'border-box',
    width: 'min(24rem, calc(100vw - 16px))',
    maxHeight: '14rem',
    margin: '0',
    padding: '4px',
    overflow: 'auto',
    listStyle: 'none',
    border: '1px solid var(--line)',
    borderRadius: 'var(--round)',
    backgroundColor: 'var(--raised)',
    color: 'var(--text)',
    boxShadow: 'var(--shadow)',
    fontFamily: 'var(--mono)',
  },
  '.cm-proposals[hidden]': { display: 'none' },
  '.cm-proposals li': {
    display: 'flex',
    justifyContent: 'space-between',
    gap: '12px',
    padding: '2px 8px',
    borderRadius: '4px',
    overflowWrap: 'anywhere',
    cursor: 'pointer',
  },
  '.cm-proposals li[aria-selected=true]': { backgroundColor: 'var(--accent-soft)' },
  '.cm-proposals small': { color: 'var(--soft)', whiteSpace: 'nowrap' },
});
