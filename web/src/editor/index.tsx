import { closeBrackets, closeBracketsKeymap } from '@codemirror/autocomplete';
import {
  copyLineDown,
  copyLineUp,
  deleteLine,
  history,
  historyKeymap,
  indentLess,
  indentMore,
  moveLineDown,
  moveLineUp,
  selectLine,
  standardKeymap,
  toggleLineComment,
  toggleTabFocusMode,
} from '@codemirror/commands';

import { jsonLanguage } from '@codemirror/lang-json';
import {
  bracketMatching,
  foldGutter,
  foldKeymap,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from '@codemirror/language';
import { MergeView } from '@codemirror/merge';
import {
  closeSearchPanel,
  findNext,
  findPrevious,
  gotoLine,
  highlightSelectionMatches,
  openSearchPanel,
  search,
} from '@codemirror/search';
import { EditorState, type Extension } from '@codemirror/state';
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  type KeyBinding,
  keymap,
  lineNumbers,
} from '@codemirror/view';
import { tags } from '@lezer/highlight';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { type Complete, completion } from './completion';
import { javascriptLanguage } from './javascript';
import { checked, lineOfMistake, type Mistake, tell } from './mistakes';
import { say } from './texts';

export type { Complete };
export { lineOfMistake, type Mistake };

export type Mode = 'json' | 'javascript' | 'text';

export interface EditorProps {
  /** What it begins with. Another text later takes the place of what is there. */
  value: string;
  onChange?: (value: string) => void;
  /** Ctrl+S or Cmd+S. */
  onSave?: () => void;
  /** Ctrl+Enter or Cmd+Enter. */
  onRun?: () => void;
  mode: Mode;
  label: string;
  isReadOnly?: boolean;
  /** Mistakes that somebody else found: the server. */
  mistakes?: Mistake[];
  focus?: boolean;
  /** Proposes what can be written. */
  complete?: Complete;
}

/** CodeMirror's keys for lines. Those for several carets, which no editor here has, are left out. */
const lineKeymap: KeyBinding[] = [
  { key: 'Alt-ArrowUp', run: moveLineUp, shift: copyLineUp },
  { key: 'Alt-ArrowDown', run: moveLineDown, shift: copyLineDown },
  { key: 'Alt-l', mac: 'Ctrl-l', run: selectLine },
  { key: 'Mod-[', run: indentLess },
  { key: 'Mod-]', run: indentMore },
  { key: 'Shift-Mod-k', run: deleteLine },
  { key: 'Mod-/', run: toggleLineComment },
  { key: 'Ctrl-m', mac: 'Shift-Alt-m', run: toggleTabFocusMode },
];

const IN_SEARCH = 'editor search-panel';
const findKeymap: KeyBinding[] = [
  { key: 'Mod-f', run: openSearchPanel, scope: IN_SEARCH },
  { key: 'F3', run: findNext, shift: findPrevious, scope: IN_SEARCH, preventDefault: true },
  { key: 'Mod-g', run: findNext, shift: findPrevious, scope: IN_SEARCH, preventDefault: true },
  { key: 'Escape', run: closeSearchPanel, scope: IN_SEARCH },
  { key: 'Mod-Alt-g', run: gotoLine },
];

/** Larger texts have no syntax: colours would take longer than reading. */
const COLOURED_MAX = 2_000_000;

/** Colours by name of the page's own, so that both themes are one. */
const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--info)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--warn)' },
  { tag: [tags.keyword, tags.controlKeyword, tags.operatorKeyword], color: 'var(--bad)' },
  { tag: [tags.comment], color: 'var(--soft)', fontStyle: 'italic' },
  {
    tag: [tags.function(tags.variableName), tags.definition(tags.variableName)],
    color: 'var(--accent)',
  },
  { tag: tags.invalid, textDecoration: 'underline wavy var(--bad)' },
]);

const look = EditorView.theme({
  '&': { height: '100%', fontSize: '13px', backgroundColor: 'var(--page)', color: 'var(--text)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--soft)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'transparent' },
  '&.cm-focused .cm-activeLine, &.cm-focused .cm-activeLineGutter': {
    backgroundColor: 'color-mix(in oklab, var(--hover), transparent 40%)',
  },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-content': { caretColor: 'var(--text)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground':
    { backgroundColor: 'color-mix(in oklab, var(--accent), transparent 75%)' },
  '.cm-panels, .cm-tooltip': {
    backgroundColor: 'var(--raised)',
    color: 'var(--text)',
    borderColor: 'var(--line)',
  },
  '.cm-panels input, .cm-panels button': {
    backgroundImage: 'none',
    backgroundColor: 'var(--page)',
    color: 'var(--text)',
    border: '1px solid var(--line)',
  },
  '.cm-foldPlaceholder': { backgroundColor: 'var(--hover)', border: 'none', color: 'var(--soft)' },
  '.cm-matchingBracket': { backgroundColor: 'transparent' },
  '&.cm-focused .cm-matchingBracket': {
    backgroundColor: 'var(--accent-soft)',
    outline: '1px solid var(--accent)',
  },
  '.cm-mistake': {
    textDecoration: 'underline wavy var(--bad) 1px',
    textUnderlineOffset: '3px',
    backgroundColor: 'var(--bad-soft)',
  },
  '.cm-mistake-words': {
    padding: '3px 8px',
    fontFamily: 'var(--sans)',
    fontSize: '12px',
    color: 'var(--bad)',
    overflowWrap: 'anywhere',
  },
  '.cm-searchMatch': { backgroundColor: 'var(--warn-soft)' },
  '.cm-changedLine': { backgroundColor: 'var(--warn-soft) !important' },
  '.cm-collapsedLines': { background: 'var(--panel) !important', color: 'var(--soft) !important' },
  '.cm-collapsedLines:before, .cm-collapsedLines:after': { content: '"⋯" !important' },
  '.cm-changedText': { background: 'none !important', boxShadow: 'inset 0 -2px var(--warn)' },
});

function languageOf(mode: Mode): Extension {
  return mode === 'json' ? jsonLanguage : mode === 'javascript' ? javascriptLanguage : [];
}

/**
 * Text that takes the place of a selection: left to Chromium, coloured text would get a style
 * attribute, which the policy reports.
 */
const replacesPlainly = EditorView.domEventHandlers({
  beforeinput: ({ inputType, data, isComposing }, view) => {
    const { state } = view;
    const { from, to, empty } = state.selection.main;
    if (inputType !== 'insertText' || data === null || isComposing || empty || state.readOnly)
      return false;
    const insert = () =>
      state.update({
        ...state.replaceSelection(data),
        userEvent: 'input.type',
        scrollIntoView: true,
      });
    if (
      !state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, data, insert))
    )
      view.dispatch(insert());
    return true;
  },
});

function extensions(
  { mode, label, isReadOnly, value }: Pick<EditorProps, 'mode' | 'label' | 'isReadOnly' | 'value'>,
  press: (name: 'onSave' | 'onRun') => boolean = () => false,
): Extension[] {
  return [
    lineNumbers(),
    foldGutter(),
    history(),
    drawSelection(),
    indentOnInput(),
    indentUnit.of('  '),
    bracketMatching(),
    closeBrackets(),
    highlightActiveLine(),
    highlightSelectionMatches(),
    search({ top: true }),
    syntaxHighlighting(colours),
    look,
    replacesPlainly,
    // Tab moves on, so that nobody is caught by the keyboard; after Escape, or with Ctrl+M, it
    // indents.
    keymap.of([
      { key: 'Mod-s', run: () => press('onSave'), preventDefault: true },
      { key: 'Mod-Enter', run: () => press('onRun') },
      ...closeBracketsKeymap,
      ...lineKeymap,
      ...standardKeymap,
      ...findKeymap,
      ...historyKeymap,
      ...foldKeymap,
    ]),
    EditorView.contentAttributes.of({ 'aria-label': label, autocapitalize: 'off', tabindex: '0' }),
    EditorState.readOnly.of(isReadOnly ?? false),
    // One that cannot be changed may be a module, which the grammar does not know.
    checked(isReadOnly || value.length > COLOURED_MAX ? 'text' : mode),
    value.length > COLOURED_MAX ? [] : [languageOf(mode), EditorView.lineWrapping],
  ];
}

/** A shadow tree takes styles by the object model: the policy forbids style elements. */
class EditorElement extends HTMLElement {
  readonly shadow = this.attachShadow({ mode: 'open' });
}

if (!customElements.get('settee-editor')) customElements.define('settee-editor', EditorElement);

declare module 'preact' {
  namespace JSX {
    interface IntrinsicElements {
      'settee-editor': JSX.IntrinsicElements['div'];
    }
  }
}

/** Edits a text. Its state is its own: `value` is what it begins with. */
export default function Editor(props: EditorProps): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const root = (element.current as EditorElement | null)?.shadow;
    if (!root) return;
    const changed = EditorView.updateListener.of((update) => {
      if (update.docChanged) latest.current.onChange?.(update.state.doc.toString());
    });
    const press = (name: 'onSave' | 'onRun') => {
      latest.current[name]?.();
      return latest.current[name] !== undefined;
    };
    const completes = props.complete
      ? completion((text, at) => latest.current.complete?.(text, at), say().proposals)
      : [];
    const state = EditorState.create({
      doc: props.value,
      extensions: [...extensions(props, press), changed, completes],
    });
    const made = new EditorView({ state, parent: root as unknown as Element, root });
    view.current = made;
    if (props.focus) made.focus();
    return () => made.destroy();
  }, [props.mode, props.isReadOnly]);
  useEffect(() => {
    const now = view.current;
    if (!now || now.state.doc.toString() === props.value) return;
    now.dispatch({ changes: difference(now.state.doc.toString(), props.value) });
  }, [props.value]);
  useEffect(() => {
    const now = view.current;
    if (now) tell(now, props.mistakes ?? []);
  }, [props.mistakes]);
  return <settee-editor ref={element} class="editor" />;
}

/** What makes one text of another: only that is changed, so that the caret stays where it is. */
function difference(old: string, to: string): { from: number; to: number; insert: string } {
  const most = Math.min(old.length, to.length);
  let from = 0;
  while (from < most && old.charCodeAt(from) === to.charCodeAt(from)) from++;
  let end = 0;
  while (
    end < most - from &&
    old.charCodeAt(old.length - 1 - end) === to.charCodeAt(to.length - 1 - end)
  )
    end++;
  return { from, to: old.length - end, insert: to.slice(from, to.length - end) };
}

/** Two texts side by side, with what differs. */
export function Compare({
  before,
  after,
  labels,
}: {
  before: string;
  after: string;
  labels: [string, string];
}): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const root = (element.current as EditorElement | null)?.shadow;
    if (!root) return;
    const side = (value: string, label: string) => ({
      doc: value,
      extensions: extensions({ mode: 'json', label, isReadOnly: true, value }),
    });
    const merge = new MergeView({
      a: side(before, labels[0]),
      b: side(after, labels[1]),
      parent: root as unknown as Element,
      root,
      collapseUnchanged: {},
    });
    merge.dom.style.height = '100%';
    merge.dom.style.overflow = 'auto';
    return () => merge.destroy();
  }, [before, after]);
  return <settee-editor ref={element} class="editor" />;
}
