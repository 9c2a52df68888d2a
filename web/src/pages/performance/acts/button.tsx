import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../../api';
import {
  say as announce,
  Button,
  Dialog,
  Form,
  Loading,
  Problem,
  TextField,
  words,
} from '../../../ui';
import type { Act } from './command';
import { type Fact, factsOf, perform } from './facts';
import { say } from './texts';

/** A button that does what a command of a finding does. */
export function ActButton({
  act,
  command,
  done,
}: {
  act: Act;
  command: string;
  /** The server is to be examined again. */
  done: () => void;
}): JSX.Element {
  const t = say();
  const [isOpen, setOpen] = useState(false);
  if (act.kind === 'show')
    return (
      <a class="button" href={act.to}>
        {t.acts.show}
      </a>
    );
  return (
    <>
      <Button kind={act.kind === 'drop' ? undefined : 'primary'} onClick={() => setOpen(true)}>
        {t.acts[act.kind]}
      </Button>
      {isOpen && <Acting {...{ act, command, done }} close={() => setOpen(false)} />}
    </>
  );
}

/** Shows what is before, does it, and shows what is after. */
function Acting({
  act: given,
  command,
  done,
  close,
}: {
  act: Exclude<Act, { kind: 'show' }>;
  command: string;
  done: () => void;
  close: () => void;
}): JSX.Element {
  const t = say();
  const [value, setValue] = useState(given.kind === 'config' ? given.value : '');
  const act = given.kind === 'config' ? { ...given, value } : given;
  const before = useResource('before', () => factsOf(given));
  const [after, setAfter] = useState<Fact[]>();
  const work = async () => {
    const undo = await perform(act);
    setAfter(await factsOf(act));
    announce(`${t.done}: ${t.acts[act.kind]}`, undo && (() => undo().then(done)));
  };
  const end = () => {
    close();
    if (after) done();
  };
  return (
    <Dialog title={t.acts[act.kind]} onClose={end}>
      <Problem error={before.error} retry={before.reload} />
      {!before.data && before.error === undefined && <Loading lines={2} />}
      {before.data && (
        <Form
          onSubmit={after ? async () => end() : work}
          submit={after ? words().close : t.acts[act.kind]}
          kind={act.kind === 'drop' && !after ? 'danger' : 'primary'}
          {...(!after && { onCancel: end })}
        >
          <div class="command">
            <pre>{command}</pre>
          </div>
          {act.kind === 'config' && !after && (
            <TextField label={t.newValue} value={value} onInput={setValue} focus />
          )}
          <Facts before={before.data} after={after} />
        </Form>
      )}
    </Dialog>
  );
}

function Facts({ before, after }: { before: Fact[]; after: Fact[] | undefined }): JSX.Element {
  const t = say();
  return (
    <table class="plain" aria-live="polite">
      <thead>
        <tr>
          <th />
          <th>{t.beforeAct}</th>
          <th>{t.afterAct}</th>
        </tr>
      </thead>
      <tbody>
        {before.map(([name, value], n) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{value}</td>
            <td>{after ? after[n]?.[1] : '–'}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
