import { signal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Form, TextField } from './controls';
import { Icon } from './icons';
import { words } from './texts';

/** A dialog before everything else. It gives the focus back when it closes. */
export function Dialog({
  title,
  onClose,
  children,
  wide,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  // Before the effects of what is inside: a field there takes the focus from the button that
  // closes.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    return () => {
      // While it is open, nothing else takes the focus.
      element?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? 'wide' : ''}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header>
        <h2>{title}</h2>
        <button type="button" class="plain" aria-label={words().close} onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}

interface Question {
  title: string;
  text: ComponentChildren;
  /** What the button says. */
  action: string;
  kind?: 'primary' | 'danger';
  /** Has to be typed, for what cannot be undone. */
  type?: string;
  /** Runs while the dialog stands; what it throws is shown there. */
  work: () => Promise<unknown>;
}

const asked = signal<{ question: Question; answer: (done: boolean) => void } | undefined>(
  undefined,
);

/** Asks before something is done, and does it; answers whether it was done. */
export function confirm(question: Question): Promise<boolean> {
  return new Promise((answer) => {
    asked.value = { question, answer };
  });
}

/** Where `confirm` asks; once on the page. */
export function Confirmations(): JSX.Element | null {
  const now = asked.value;
  if (!now) return null;
  const end = (done: boolean) => {
    asked.value = undefined;
    now.answer(done);
  };
  return <Confirmation key={now.question.title} question={now.question} end={end} />;
}

function Confirmation({
  question,
  end,
}: {
  question: Question;
  end: (done: boolean) => void;
}): JSX.Element {
  const [typed, setTyped] = useState('');
  const work = async () => {
    await question.work();
    end(true);
  };
  return (
    <Dialog title={question.title} onClose={() => end(false)}>
      <Form
        onSubmit={work}
        submit={question.action}
        kind={question.kind ?? 'danger'}
        onCancel={() => end(false)}
        disabled={question.type !== undefined && typed !== question.type}
      >
        <div>{question.text}</div>
        {question.type !== undefined && (
          <TextField
            label={words().typeToConfirm(question.type)}
            value={typed}
            onInput={setTyped}
            focus
            autocomplete="off"
          />
        )}
      </Form>
    </Dialog>
  );
}
