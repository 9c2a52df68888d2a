import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from './controls';
import { words } from './texts';
import { complain } from './toast';

const COPIED_MS = 1500;

/** A button that copies a text, and says so for a while; with an icon alone where it has no name. */
export function CopyButton({
  text,
  children,
}: {
  text: () => string;
  children?: ComponentChildren;
}): JSX.Element {
  const [isCopied, setCopied] = useState(false);
  const t = words();
  const copy = async () => {
    await navigator.clipboard.writeText(text());
    setCopied(true);
    setTimeout(() => setCopied(false), COPIED_MS);
  };
  const icon = isCopied ? 'check' : 'copy';
  return children ? (
    <Button icon={icon} onClick={() => copy().catch(complain)}>
      {isCopied ? t.copied : children}
    </Button>
  ) : (
    <Button
      kind="plain"
      icon={icon}
      label={isCopied ? t.copied : t.copy}
      onClick={() => copy().catch(complain)}
    />
  );
}

/** A text with a button that copies it. */
export function Copyable({ text }: { text: string }): JSX.Element {
  return (
    <span class="copyable">
      <code>{text}</code>
      <CopyButton text={() => text} />
    </span>
  );
}
