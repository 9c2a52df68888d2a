export {
  Badge,
  Button,
  Check,
  Choice,
  Copyable,
  Empty,
  Field,
  Form,
  Loading,
  Progress,
  type Tab,
  Tabs,
  TextField,
} from './controls';
export { Confirmations, confirm, Dialog } from './dialog';
export { Compare, Editor } from './editor';
export { explain, Problem } from './errors';
export { Icon, type IconName } from './icons';
export { explainJson, inLine, mistakeWords } from './mistakes';
export { words } from './text';
export { complain, say, Toasts } from './toast';
export { type Column, style, Table } from './virtual';
