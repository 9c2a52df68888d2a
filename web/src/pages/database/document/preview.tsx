import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { send, useResource } from '../../../api';
import { bytes } from '../../../i18n';
import { parse, print } from '../../../json';
import { Dialog, Editor, Loading, Problem } from '../../../ui';
import { type Attachment, attachmentHref } from './attachment';
import type { Draft } from './draft';
import { say } from './texts';

const TEXT_MAX = 1_000_000;
const MEDIA_MAX = 200_000_000;

type Kind = 'image' | 'audio' | 'video' | 'json' | 'text' | undefined;

function kindOf({ type, name }: Attachment): Kind {
  const [major, minor = ''] = type.toLowerCase().replace(/;.*/s, '').split('/');
  if (major === 'image' || major === 'audio' || major === 'video') return major;
  if (/json$/.test(minor) || /\.json$/i.test(name)) return 'json';
  // HTML too is shown as its text: run here, it could do all that its reader may.
  if (
    major === 'text' ||
    /xml|javascript|yaml|x-sh|sql|csv/.test(minor) ||
    /\.(txt|md|log|csv|ya?ml|toml|ini|rs|js|ts|css|html?)$/i.test(name)
  )
    return 'text';
  return undefined;
}

export function Preview({
  draft,
  of,
  onClose,
}: {
  draft: Draft;
  of: Attachment;
  onClose: () => void;
}): JSX.Element {
  const t = say();
  const kind = kindOf(of);
  const isMedia = kind === 'image' || kind === 'audio' || kind === 'video';
  return (
    <Dialog title={of.name} onClose={onClose} wide>
      <div class="preview">
        <p class="soft row-of small">
          <span>{of.type}</span> <span>{bytes(of.size)}</span>
          <a href={attachmentHref(draft, of.name)} download={of.name}>
            {t.download}
          </a>
        </p>
        {kind === undefined ? (
          <p class="notice">{t.noPreview}</p>
        ) : isMedia && of.size > MEDIA_MAX ? (
          <p class="notice">{t.tooLarge}</p>
        ) : kind === 'image' ? (
          <Picture draft={draft} of={of} />
        ) : isMedia ? (
          <Media draft={draft} of={of} kind={kind} />
        ) : (
          <Text draft={draft} of={of} isJson={kind === 'json'} />
        )}
      </div>
    </Dialog>
  );
}

function load(
  draft: Draft,
  of: Attachment,
  signal: AbortSignal,
  headers?: Record<string, string>,
): Promise<Response> {
  return send('GET', `${draft.path}/${encodeURIComponent(of.name)}`, {
    query: { rev: draft.rev },
    signal,
    headers: { accept: '*/*', ...headers },
  });
}

/**
 * By its own address, where the server keeps it from running anything: as a blob, an SVG that is
 * opened by itself would run as this page.
 */
function Picture({ draft, of }: { draft: Draft; of: Attachment }): JSX.Element {
  const [isBroken, setBroken] = useState(false);
  if (isBroken) return <p class="notice">{say().noPreview}</p>;
  return <img src={attachmentHref(draft, of.name)} alt={of.name} onError={() => setBroken(true)} />;
}

function Media({
  draft,
  of,
  kind,
}: {
  draft: Draft;
  of: Attachment;
  kind: 'audio' | 'video';
}): JSX.Element {
  const content = useResource(`${draft.path}/${of.name} ${of.digest}`, async (signal) =>
    (await load(draft, of, signal)).blob(),
  );
  const [source, setSource] = useState<string | undefined>();
  useEffect(() => {
    if (!content.data) return;
    const made = URL.createObjectURL(content.data);
    setSource(made);
    return () => URL.revokeObjectURL(made);
  }, [content.data]);
  if (content.error !== undefined) return <Problem error={content.error} retry={content.reload} />;
  if (source === undefined) return <Loading />;
  return kind === 'audio' ? (
    <audio src={source} controls aria-label={of.name} />
  ) : (
    <video src={source} controls aria-label={of.name} />
  );
}

function Text({
  draft,
  of,
  isJson,
}: {
  draft: Draft;
  of: Attachment;
  isJson: boolean;
}): JSX.Element {
  const isCut = of.size > TEXT_MAX;
  const content = useResource(`${draft.path}/${of.name} ${of.digest}`, async (signal) => {
    const response = await load(
      draft,
      of,
      signal,
      isCut ? { range: `bytes=0-${TEXT_MAX - 1}` } : {},
    );
    const text = (await (await response.blob()).slice(0, TEXT_MAX).text()) || '';
    return isJson && !isCut ? pretty(text) : text;
  });
  if (content.error !== undefined) return <Problem error={content.error} retry={content.reload} />;
  if (content.data === undefined) return <Loading />;
  return (
    <>
      {isCut && <p class="notice">{say().firstPart(bytes(TEXT_MAX))}</p>}
      <Editor
        mode={isJson ? 'json' : /javascript/.test(of.type) ? 'javascript' : 'text'}
        label={of.name}
        value={content.data}
        isReadOnly
      />
    </>
  );
}

function pretty(text: string): string {
  try {
    return print(parse(text), 2);
  } catch {
    return text;
  }
}
