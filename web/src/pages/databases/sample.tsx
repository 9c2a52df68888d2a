import type { JSX } from 'preact';
import { ask, path, send } from '../../api';
import { go } from '../../router';
import { Button, complain, say } from '../../ui';
import { t } from './texts';

const NAME = 'shop';

/** Offers a small shop to a server without databases of its own. */
export function Sample(): JSX.Element {
  return (
    <div class="card">
      <h2>{t().sample}</h2>
      <p class="soft">{t().sampleText}</p>
      <div>
        <Button icon="add" onClick={() => load().catch(complain)}>
          {t().loadSample}
        </Button>
      </div>
    </div>
  );
}

/** Creates the database; its documents are a file next to the pages, as `_bulk_docs` takes it. */
async function load(): Promise<void> {
  const response = await fetch(new URL('shop.json', location.href));
  if (!response.ok) throw new Error(response.statusText);
  const body = await response.text();
  await send('PUT', path(NAME));
  await ask('POST', `${path(NAME)}/_bulk_docs`, { body });
  say(t().sampleLoaded);
  go(['database', NAME, '_all_docs']);
}
