import {
  continuedIndent,
  delimitedIndent,
  flatIndent,
  foldInside,
  foldNodeProp,
  indentNodeProp,
  LRLanguage,
} from '@codemirror/language';
import { parser } from './parser';

/** The language of design functions: its colours, and where lines are indented and folded. */
export const javascriptLanguage = LRLanguage.define({
  name: 'javascript',
  parser: parser.configure({
    props: [
      indentNodeProp.add({
        IfStatement: continuedIndent({ except: /^\s*({|else\b)/ }),
        TryStatement: continuedIndent({ except: /^\s*({|catch\b|finally\b)/ }),
        LabeledStatement: flatIndent,
        SwitchBody: ({ textAfter, baseIndent, unit }) =>
          baseIndent +
          (/^\s*\}/.test(textAfter) ? 0 : /^\s*(case|default)\b/.test(textAfter) ? unit : 2 * unit),
        Block: delimitedIndent({ closing: '}' }),
        ArrowFunction: ({ baseIndent, unit }) => baseIndent + unit,
        'TemplateString BlockComment': () => null,
        'Statement Property': continuedIndent({ except: /^\s*{/ }),
      }),
      foldNodeProp.add({
        'Block ClassBody SwitchBody ObjectExpression ArrayExpression': foldInside,
        BlockComment: ({ from, to }) => ({ from: from + 2, to: to - 2 }),
      }),
    ],
  }),
  languageData: {
    closeBrackets: { brackets: ['(', '[', '{', "'", '"', '`'] },
    commentTokens: { line: '//', block: { open: '/*', close: '*/' } },
    indentOnInput: /^\s*(?:case |default:|\{|\})$/,
  },
});
