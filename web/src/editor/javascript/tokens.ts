import { ContextTracker, ExternalTokenizer } from '@lezer/lr';
import {
  BlockComment,
  incdec,
  incdecPrefix,
  insertSemi,
  LineComment,
  newline,
  noSemi,
  questionDot,
  spaces,
} from './parser.terms';

// The tokens that depend on what is before and after them.

const SPACE = /\s/;
const [PLUS, MINUS, SLASH, STAR, SEMICOLON, BRACE, QUESTION, DOT, ZERO, NINE, END] = [
  43, 45, 47, 42, 59, 125, 63, 46, 48, 57, -1,
];

/** Whether there is a line break before the token. */
export const trackNewline = new ContextTracker<boolean>({
  start: false,
  shift: (context, term) =>
    term === LineComment || term === BlockComment || term === spaces ? context : term === newline,
  strict: false,
});

/** A semicolon that is left out, at the end of a line, of a block or of the text. */
export const insertSemicolon = new ExternalTokenizer(
  (input, stack) => {
    if (input.next === BRACE || input.next === END || stack.context) input.acceptToken(insertSemi);
  },
  { contextual: true, fallback: true },
);

/** That a statement such as `return` goes on, in the same line. */
export const noSemicolon = new ExternalTokenizer(
  (input, stack) => {
    const { next } = input;
    if (next >= 0 && SPACE.test(String.fromCodePoint(next))) return;
    const after = next === SLASH ? input.peek(1) : END;
    if (after === SLASH || after === STAR) return;
    if (next !== BRACE && next !== SEMICOLON && next !== END && !stack.context)
      input.acceptToken(noSemi);
  },
  { contextual: true },
);

/** `++` and `--`, before or after a value, and `?.`. */
export const operatorToken = new ExternalTokenizer(
  (input, stack) => {
    const { next } = input;
    if (next === PLUS || next === MINUS) {
      input.advance();
      if (input.next !== next) return;
      input.advance();
      input.acceptToken(!stack.context && stack.canShift(incdec) ? incdec : incdecPrefix);
    } else if (next === QUESTION && input.peek(1) === DOT) {
      input.advance();
      input.advance();
      if (input.next < ZERO || input.next > NINE) input.acceptToken(questionDot);
    }
  },
  { contextual: true },
);
