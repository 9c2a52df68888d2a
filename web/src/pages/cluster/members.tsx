import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, path } from '../../api';
import { Badge, Button, Copyable, confirm, Dialog, Problem, say as toast } from '../../ui';
import { say } from './texts';
import type { Member, Membership, Status } from './types';

export function Members({
  membership,
  status,
  reload,
}: {
  membership: Membership;
  status: Status | undefined;
  reload: () => void;
}): JSX.Element {
  const t = say();
  const [isAdding, setAdding] = useState(false);
  const members: Member[] =
    status?.nodes ??
    [...new Set([...membership.cluster_nodes, ...membership.all_nodes])].map((name) => ({
      node: '',
      name,
      address: '',
      is_live: membership.all_nodes.includes(name),
      is_me: membership.cluster_nodes.length === 1,
    }));
  const remove = (member: Member) =>
    confirm({
      title: t.removeTitle,
      text: t.removeText(member.name),
      action: t.remove,
      type: member.name,
      work: async () => {
        await ask('DELETE', path('_settee', 'cluster', 'nodes', member.node));
        toast(t.removed(member.name));
        reload();
      },
    });
  return (
    <section class="part">
      <div class="bar">
        <h2 class="grow">{t.nodes}</h2>
        {status && (
          <Button icon="add" onClick={() => setAdding(true)}>
            {t.addNode}
          </Button>
        )}
      </div>
      {members.length === 1 && !status && <p class="soft small">{t.alone}</p>}
      <div class="scrolls">
        <table class="plain" aria-label={t.nodes}>
          <thead>
            <tr>
              <th>{t.name}</th>
              <th>{t.state}</th>
              {status && (
                <>
                  <th>{t.address}</th>
                  <th class="wide-only">{t.number}</th>
                  <th />
                </>
              )}
            </tr>
          </thead>
          <tbody>
            {members.map((member) => (
              <tr key={member.name}>
                <td>{member.name}</td>
                <td>
                  <Badge kind={member.is_live || member.is_me ? 'good' : 'bad'}>
                    {member.is_me
                      ? t.thisNode
                      : !membership.cluster_nodes.includes(member.name)
                        ? t.joining
                        : member.is_live
                          ? t.alive
                          : t.silent}
                  </Badge>
                </td>
                {status && (
                  <>
                    <td class="mono">{member.address}</td>
                    <td class="mono wide-only">{member.node}</td>
                    <td class="end">
                      {!member.is_me && (
                        <Button
                          kind="plain"
                          icon="remove"
                          label={`${t.remove}: ${member.name}`}
                          onClick={() => remove(member)}
                        />
                      )}
                    </td>
                  </>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {isAdding && <AddNode onClose={() => setAdding(false)} />}
    </section>
  );
}

function AddNode({ onClose }: { onClose: () => void }): JSX.Element {
  const t = say();
  const [token, setToken] = useState('');
  const [failed, setFailed] = useState<unknown>();
  const make = async () => {
    setFailed(undefined);
    try {
      setToken(
        (await ask<{ token: string }>('POST', '/_settee/cluster/tokens', { body: {} })).token,
      );
    } catch (error) {
      setFailed(error);
    }
  };
  return (
    <Dialog title={t.addNode} onClose={onClose} wide>
      <div class="part">
        <p>{t.tokenText}</p>
        <Problem error={failed} />
        {token ? (
          <Copyable
            text={`settee cluster join --data /var/lib/settee --token ${token} --name NAME --address HOST:5986`}
          />
        ) : (
          <Button kind="primary" onClick={make}>
            {t.makeToken}
          </Button>
        )}
      </div>
    </Dialog>
  );
}
