export {
  Badge,
  Button,
  Check,
  Choice,
  Empty,
  Field,
  Form,
  Loading,
  Progress,
  type Tab,
  Tabs,
  TextField,
} from './controls';
export { Copyable, CopyButton } from './copy';
export { Confirmations, confirm, Dialog } from './dialog';
export { download } from './download';
export { Compare, Editor } from './editor';
export { Problem } from './errors';
export { explain } from './explain';
export { Icon, type IconName } from './icons';
export { explainJson, inLine, mistakeWords } from './mistakes';
export { words } from './texts';
export { complain, say, Toasts } from './toast';
export { type Column, style, Table } from './virtual';
