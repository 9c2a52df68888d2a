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
export { Confirmations, Dialog, confirm } from './dialog';
export { Problem, explain } from './errors';
export { Icon, type IconName } from './icons';
export { explainJson, inLine, mistakeWords } from './mistakes';
export { words } from './text';
export { Toasts, complain, say } from './toast';
export { type Column, Table, style } from './virtual';
export { Compare, Editor } from './editor';
