// Files on a database: CSV and JSON, chosen or dropped; ten rows with types, a choice of _id, then progress; what the server refuses is told.
export const name = 'documents-import';
export const short = true;
export const themes = true;

const DB = 'imported';
const BIG = '9223372036854775807';

export async function run({ page, server, check, open }) {
  await server.request('DELETE', `/${DB}`);
  await server.request('PUT', `/${DB}`);
  await open(`database/${DB}/_all_docs`);
  const dialog = page.getByRole('dialog', { name: 'Import documents' });
  const choose = async (file, text) => {
    await page.getByLabel('File to import').setInputFiles({ name: file, mimeType: 'text/plain', buffer: Buffer.from(text) });
    await dialog.getByRole('region', { name: 'The first documents' }).waitFor();
  };

  const rows = Array.from({ length: 2500 }, (_, n) => `${String(n).padStart(5, '0')};Ort ${n};${n},5;${BIG}\r\n`);
  await choose('places.csv', `\ufeffplz;name;price;big\r\n${rows.join('')}`);
  check('the delimiter is detected', (await dialog.getByLabel('Delimiter').inputValue()) === ';');
  check('leading zeros make a column text', (await dialog.getByLabel('plz').inputValue()) === 'text');
  check('ten rows are shown', (await dialog.getByRole('row').count()) === 11, await dialog.getByRole('row').count());
  await dialog.getByLabel('Numbers have a decimal comma').check();
  check('a decimal comma makes numbers', (await dialog.getByLabel('price').inputValue()) === 'number');
  await dialog.getByLabel('Take _id from').selectOption('plz');
  await dialog.getByRole('button', { name: 'Import', exact: true }).click();
  await dialog.getByText('2,500 documents written').waitFor();
  check('all rows are written', true);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  const { text } = await server.request('GET', `/${DB}/00007`);
  check('a document has the values of its row', text.includes(`"plz":"00007","name":"Ort 7","price":7.5,"big":${BIG}`), text);
  await page.getByText('2,500 documents').first().waitFor();
  check('the list shows them', true);

  await choose('again.jsonl', `{"_id":"00007","n":1}\n{"_id":"new","n":1.0}\n`);
  await dialog.getByRole('button', { name: 'Import', exact: true }).click();
  await dialog.getByText('1 document written').waitFor();
  check('a document that exists is refused, and named', /conflict.*00007/s.test(await dialog.innerText()), await dialog.innerText());
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  check('numbers keep their digits', (await server.request('GET', `/${DB}/new`)).text.includes('"n":1.0'));

  await drop(page, 'dropped.json', '[{"_id":"dropped"}]');
  await dialog.getByRole('button', { name: 'Import', exact: true }).click();
  await dialog.getByText('1 document written').waitFor();
  check('a file can be dropped', (await server.request('GET', `/${DB}/dropped`)).status === 200);
  await dialog.getByRole('button', { name: 'Close' }).last().click();

  await page.getByLabel('File to import').setInputFiles({ name: 'wrong.json', mimeType: 'text/plain', buffer: Buffer.from('[{"a":1}, nonsense]') });
  await dialog.getByText('This is not JSON').waitFor();
  check('what is not JSON is said', await dialog.getByRole('button', { name: 'Import', exact: true }).isDisabled());
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await server.request('DELETE', `/${DB}`);
}

/** Drops a file on the page, as a desktop does. */
async function drop(page, name, text) {
  const transfer = await page.evaluateHandle(
    ([file, content]) => {
      const data = new DataTransfer();
      data.items.add(new File([content], file));
      return data;
    },
    [name, text],
  );
  await page.dispatchEvent('main', 'dragover', { dataTransfer: transfer });
  await page.getByRole('button', { name: 'Drop to import' }).waitFor();
  await page.dispatchEvent('main', 'drop', { dataTransfer: transfer });
}
