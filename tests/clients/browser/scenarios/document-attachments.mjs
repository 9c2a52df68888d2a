// Attachments: upload, replace, preview, delete; 100 MB. The editor's text follows.
import { open as openFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const name = 'document: attachments';
export const seconds = 240;

const DB = 'document-attachments';
const MB = 1_000_000;

async function fileOf(folder, file, bytes) {
  const to = await openFile(join(folder, file), 'w');
  await to.truncate(bytes);
  await to.close();
  return join(folder, file);
}

export async function run({ context, page, open, check, server }) {
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}`);
  await server.request('PUT', `/${DB}/files`, '{"n":1.0}');
  const stubs = async () => (await server.request('GET', `/${DB}/files`)).json._attachments ?? {};
  const text = (file) => ({ name: file.name, mimeType: file.type, buffer: Buffer.from(file.text) });
  const input = page.getByLabel('Choose files to upload');
  const told = (what) => page.getByRole('status').getByText(what).last().waitFor();
  const preview = async (file) => {
    await page.getByRole('table', { name: 'Attachments' }).getByRole('button', { name: file, exact: true }).click();
    return page.getByRole('dialog', { name: file });
  };
  const close = (dialog) => dialog.getByRole('button', { name: 'Close' }).click();

  // Unsaved text stays, and goes on from the revision that has the attachments.
  await open(`database/${DB}/_doc/files`);
  const editor = page.getByRole('textbox', { name: 'Document as JSON' });
  await editor.click();
  await page.keyboard.press('Control+Home');
  await page.keyboard.press('End');
  await page.keyboard.insertText('\n  "unsaved": 7.0,');
  await page.getByRole('link', { name: 'Attachments', exact: true }).click();
  await input.setInputFiles([text({ name: 'hello.txt', type: 'text/plain', text: 'Hello there' }), text({ name: 'data.json', type: 'application/json', text: '{"big":9223372036854775807}' }), text({ name: 'page.html', type: 'text/html', text: '<script>document.title = "it ran"</script>' })]);
  await page.getByRole('table', { name: 'Attachments' }).getByRole('button', { name: 'page.html', exact: true }).waitFor();
  check('several files are uploaded', Object.keys(await stubs()).length === 3, await stubs());
  await page.getByRole('link', { name: 'JSON', exact: true }).click();
  await editor.filter({ hasText: '"unsaved": 7.0' }).filter({ hasText: 'hello.txt' }).waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await told('Saved files');
  const stored = (await server.request('GET', `/${DB}/files`)).text;
  check('unsaved text is kept and saved with them', stored.includes('"unsaved":7.0') && stored.includes('"n":1.0') && Object.keys(await stubs()).length === 3, stored);
  await page.getByRole('link', { name: 'Attachments (3)' }).click();

  // Dropped, with the name of one that is there.
  const dropped = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(['Hello again, longer'], 'hello.txt', { type: 'text/plain' }));
    return data;
  });
  await page.getByRole('button', { name: 'Upload', exact: true }).dispatchEvent('drop', { dataTransfer: dropped });
  await page.getByRole('dialog', { name: 'Replace hello.txt?' }).getByRole('button', { name: 'Replace' }).click();
  await page.getByRole('table', { name: 'Attachments' }).getByText('19 bytes').waitFor();
  check('a file is dropped, and replaces after a question', (await stubs())['hello.txt'].length === 19, await stubs());
  for (const what of ['once', 'and again']) {
    const chosen = page.waitForEvent('filechooser');
    await page.getByRole('button', { name: 'Replace hello.txt' }).click();
    await (await chosen).setFiles([text({ name: 'other.txt', type: 'text/plain', text: what })]);
    await page.getByRole('table', { name: 'Attachments' }).getByText(`${what.length} bytes`).waitFor();
  }
  check('it is uploaded again, and again', (await stubs())['hello.txt'].length === 9, await stubs());

  await server.request('PUT', `/${DB}/files`, { ...(await server.request('GET', `/${DB}/files`)).json, others: 'change' });
  await input.setInputFiles([text({ name: 'late.txt', type: 'text/plain', text: 'late' })]);
  await page.getByRole('table', { name: 'Attachments' }).getByRole('button', { name: 'late.txt', exact: true }).waitFor();
  check('with no unsaved text, an upload goes upon what others saved meanwhile', (await server.request('GET', `/${DB}/files`)).json.others === 'change' && (await stubs())['late.txt'].length === 4);

  // The session ends before an upload.
  await context.clearCookies();
  await input.setInputFiles([text({ name: 'after.txt', type: 'text/plain', text: 'after' })]);
  const again = page.getByRole('dialog', { name: 'Your session has ended' });
  await again.getByLabel('Password').fill(server.admin.split(/:(.*)/s)[1]);
  await again.getByLabel('Password').press('Enter');
  await page.getByRole('table', { name: 'Attachments' }).getByRole('button', { name: 'after.txt', exact: true }).waitFor();
  check('an upload goes on after the login', (await stubs())['after.txt'].length === 5);

  // Text that is no JSON could not note an attachment: saved later, it would lose it.
  await page.getByRole('link', { name: 'JSON', exact: true }).click();
  await editor.click();
  await page.keyboard.press('Control+End');
  await page.keyboard.insertText('}');
  await page.getByRole('link', { name: 'Attachments (5)' }).click();
  await input.setInputFiles([text({ name: 'never.txt', type: 'text/plain', text: 'never' })]);
  check('with a mistake in the text, nothing is uploaded', await page.getByRole('alert').filter({ hasText: 'Correct it before' }).waitFor().then(() => true, () => false));
  await page.getByRole('button', { name: 'Discard changes' }).click();

  // Previews.
  let dialog = await preview('hello.txt');
  check('a text is shown', await dialog.getByRole('textbox', { name: 'hello.txt' }).filter({ hasText: 'and again' }).waitFor().then(() => true, () => false));
  await close(dialog);
  dialog = await preview('data.json');
  check('JSON is shown without loss', await dialog.getByRole('textbox', { name: 'data.json' }).filter({ hasText: '9223372036854775807' }).waitFor().then(() => true, () => false));
  await close(dialog);
  dialog = await preview('page.html');
  await dialog.getByRole('textbox', { name: 'page.html' }).filter({ hasText: 'it ran' }).waitFor();
  check('HTML is shown as its text, and never runs', (await page.title()) !== 'it ran');
  await close(dialog);
  await input.setInputFiles([text({ name: 'p.svg', type: 'image/svg+xml', text: '<svg xmlns="http://www.w3.org/2000/svg" width="50" height="40"><circle cx="20" cy="20" r="9"/></svg>' })]);
  await told('Uploaded p.svg');
  dialog = await preview('p.svg');
  const image = dialog.getByRole('img', { name: 'p.svg' });
  await image.waitFor();
  check('an image is shown', await image.evaluate((element) => element.decode().then(() => element.naturalWidth === 50)));
  await close(dialog);
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Download page.html' }).click();
  check('a file is downloaded under its name', (await download).suggestedFilename() === 'page.html');

  // Delete.
  await page.getByRole('button', { name: 'Delete data.json' }).click();
  await page.getByRole('dialog', { name: 'Delete data.json?' }).getByRole('button', { name: 'Delete' }).click();
  await told('Deleted data.json');
  check('one is deleted after a question, the others stay', Object.keys(await stubs()).sort().join() === 'after.txt,hello.txt,late.txt,p.svg,page.html', await stubs());

  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByRole('status').getByText('Deleted files').waitFor();
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('status').getByText('The document is restored.').waitFor();
  check('a deleted document comes back with its attachments', Object.keys(await stubs()).length === 5 && (await server.request('GET', `/${DB}/files/hello.txt`)).text === 'and again');
  await page.getByRole('link', { name: 'Attachments (5)' }).click();

  const folder = await mkdtemp(join(tmpdir(), 'document-'));
  try {
    // Cancel: at 1 MB a second there is time.
    const network = await context.newCDPSession(page);
    await network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: MB });
    await input.setInputFiles(await fileOf(folder, 'slow.bin', 30 * MB));
    const bar = page.getByRole('progressbar', { name: 'Uploading slow.bin' });
    await bar.waitFor();
    await page.getByRole('button', { name: 'Cancel: slow.bin' }).click();
    check('an upload is cancelled', await page.getByText('cancelled').waitFor().then(() => true, () => false));
    await page.getByRole('button', { name: 'Dismiss: slow.bin' }).click();
    await network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
    check('and nothing of it is there', !(await stubs())['slow.bin']);

    await input.setInputFiles(await fileOf(folder, 'large.bin', 100 * MB));
    await page.getByRole('progressbar', { name: 'Uploading large.bin' }).waitFor();
    check('the progress of an upload is shown', true);
    await page.getByRole('status').getByText('Uploaded large.bin').waitFor({ timeout: 120_000 });
    check('100 MB are uploaded', (await stubs())['large.bin'].length === 100 * MB, await stubs());
    check('and listed', await page.getByRole('table', { name: 'Attachments' }).getByText('100 MB').waitFor().then(() => true, () => false));
  } finally {
    await rm(folder, { recursive: true });
  }
}
