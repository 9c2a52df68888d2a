import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Dialog, Form, TextField, words } from '../../../ui';

/** Asks for a name and does something with it. */
export function NameDialog({
  title,
  label,
  begin,
  onClose,
  work,
}: {
  title: string;
  label: string;
  begin: string;
  onClose: () => void;
  work: (name: string) => Promise<unknown>;
}): JSX.Element {
  const [name, setName] = useState(begin);
  return (
    <Dialog title={title} onClose={onClose}>
      <Form
        onSubmit={() => work(name.trim()).then(onClose)}
        submit={words().ok}
        onCancel={onClose}
        disabled={name.trim() === ''}
      >
        <TextField label={label} value={name} onInput={setName} focus required />
      </Form>
    </Dialog>
  );
}
