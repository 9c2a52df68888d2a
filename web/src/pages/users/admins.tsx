import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { logIn, session, useResource } from '../../api';
import { Badge, Button, confirm, Dialog, Form, Loading, Problem, say, TextField } from '../../ui';
import { admins, putAdmin, removeAdmin } from './data';
import { t } from './texts';

/** Server admins, of the section `admins` of the configuration. */
export function Admins({ isNew }: { isNew: boolean }): JSX.Element {
  const w = t();
  const { data, error, reload } = useResource('admins', admins);
  const [edited, setEdited] = useState<string | undefined>(isNew ? '' : undefined);
  const own = session.value?.name;
  const take = (name: string) =>
    confirm({
      title: w.deleteAdmin,
      text: w.deleteAdminText(name),
      action: w.deleteAdmin,
      type: name,
      work: async () => {
        await removeAdmin(name);
        say(w.deleted(name));
        reload();
      },
    });
  return (
    <>
      <div class="bar">
        <p class="soft users-about">{w.adminsHint}</p>
        <Button kind="primary" icon="add" onClick={() => setEdited('')}>
          {w.newAdmin}
        </Button>
      </div>
      <Problem error={error} retry={reload} />
      {!data && error === undefined && <Loading />}
      {data?.length === 1 && <p class="notice">{w.lastAdmin}</p>}
      {data && (
        <table class="plain users-admins">
          <tbody>
            {data.map((name) => (
              <tr key={name}>
                <th scope="row">
                  {name} {name === own && <Badge kind="info">{w.self}</Badge>}
                </th>
                <td>
                  <div class="row-of users-acts">
                    <Button onClick={() => setEdited(name)}>{w.changePassword}</Button>
                    <Button
                      icon="remove"
                      label={`${w.deleteAdmin}: ${name}`}
                      disabled={data.length === 1}
                      onClick={() => take(name)}
                    />
                  </div>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {edited !== undefined && (
        <AdminForm
          name={edited}
          taken={data ?? []}
          onClose={() => setEdited(undefined)}
          done={reload}
        />
      )}
    </>
  );
}

/** A new one, where `name` is empty; otherwise a new password. */
function AdminForm({
  name,
  taken,
  onClose,
  done,
}: {
  name: string;
  taken: string[];
  onClose: () => void;
  done: () => void;
}): JSX.Element {
  const w = t();
  const [typed, setTyped] = useState(name);
  const [password, setPassword] = useState('');
  const isTaken = name === '' && taken.includes(typed.trim());
  const submit = async () => {
    const who = typed.trim();
    await putAdmin(who, password);
    // The own session ended with the old password.
    if (who === session.value?.name) await logIn(who, password);
    say(
      name === '' ? w.created(who) : w.changed,
      name === '' ? () => removeAdmin(who).then(done) : undefined,
    );
    done();
    onClose();
  };
  return (
    <Dialog title={name === '' ? w.newAdmin : `${w.changePassword}: ${name}`} onClose={onClose}>
      <Form
        onSubmit={submit}
        submit={name === '' ? w.create : w.changePassword}
        onCancel={onClose}
        disabled={isTaken}
      >
        {name === '' && (
          <TextField
            label={w.name}
            value={typed}
            onInput={setTyped}
            error={isTaken ? w.taken : undefined}
            autocomplete="off"
            focus
            required
          />
        )}
        <TextField
          label={name === '' ? w.password : w.newPassword}
          type="password"
          value={password}
          onInput={setPassword}
          autocomplete="new-password"
          focus={name !== ''}
          required
        />
      </Form>
    </Dialog>
  );
}
