import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, useResource } from '../../../api';
import { Button, Loading } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { createIndex, explain, suggest } from './ask';
import { Refused } from './refused';
import { say } from './texts';

const CODES = ['no_usable_index', 'scan_refused'];

/** Whether a query was refused for want of an index. */
export function needsIndex(error: unknown): error is ApiError {
  return error instanceof ApiError && CODES.includes(error.error);
}

/** Says which index a refused query needs, and offers to create it. */
export function Needed({
  db,
  partition,
  query,
  error,
  again,
}: {
  db: string;
  partition: string;
  query: string;
  error: ApiError;
  again: () => void;
}): JSX.Element {
  const t = say();
  const may = useMayManage(db);
  const told = useResource(JSON.stringify([db, partition, query]), () =>
    explain(db, partition, query),
  );
  const [failed, setFailed] = useState<unknown>();
  const fields = told.data === undefined ? [] : suggest(told.data);
  if (told.isLoading) return <Loading lines={2} />;
  if (fields.length === 0) return <Refused error={error} retry={again} />;
  const create = async () => {
    setFailed(undefined);
    try {
      await createIndex(db, fields, { partitioned: partition !== '' });
      again();
    } catch (thrown) {
      setFailed(thrown);
    }
  };
  return (
    <>
      <div class="notice warn" role="alert">
        <p>
          <strong>{t.needs}</strong> {t.errors[error.error]}
        </p>
        <p>
          {t.needsText} <code>{fields.join(', ')}</code>
        </p>
        {may && (
          <Button kind="primary" icon="add" onClick={create}>
            {t.createAndRun}
          </Button>
        )}
      </div>
      <OnlyAdmins may={may} />
      <Refused error={failed} />
    </>
  );
}
