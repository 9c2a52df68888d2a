//! The text of rows.

use document::{Rev, StoredBody, write_json_string};
use storage::{RecordHead, decode_local, local_rev};

use super::Rows;
use super::query::KeyRef;
use crate::Error;
use crate::hash_ranges::Sharding;
use crate::read::write_leaves;

impl Rows {
    pub(super) fn write_row(
        &self,
        shard: usize,
        id: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let head = RecordHead::decode(value)?;
        let id = std::str::from_utf8(id).map_err(|_| storage::Error::Corrupt("document id"))?;
        write_id_and_key(id, out);
        out.extend_from_slice(b",\"value\":{\"rev\":");
        head.winner.write_json_to(out);
        out.push(b'}');
        if self.include_docs {
            out.extend_from_slice(b",\"doc\":");
            self.write_doc(shard, id, &head, out)?;
        }
        out.push(b'}');
        Ok(())
    }

    pub(super) fn write_local(
        &self,
        id: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (n, body) = decode_local(value)?;
        let id = std::str::from_utf8(id).map_err(|_| storage::Error::Corrupt("document id"))?;
        write_id_and_key(id, out);
        out.extend_from_slice(b",\"value\":{\"rev\":");
        let rev = local_rev(n);
        rev.write_json_to(out);
        out.push(b'}');
        if self.include_docs {
            out.extend_from_slice(b",\"doc\":");
            let start = out.len();
            write_members(id, &rev, false, body, out);
            out.push(b'}');
            self.censor(id, start, out);
        }
        out.push(b'}');
        Ok(())
    }

    fn write_doc(
        &self,
        shard: usize,
        id: &str,
        head: &RecordHead<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let seq = head.body_seq()?;
        let rev = head.winner.to_rev();
        let (start, first) = (out.len(), self.placement.next_number());
        let written =
            self.views.views[shard].with_body(&self.views.shards[shard], seq, |body| {
                let stored = StoredBody::split(body);
                write_members(id, &rev, head.deleted, stored.json, out);
                let contents = (&self.contents[shard], &self.placement);
                self.attachments.write(contents, stored, out)
            })?;
        written.ok_or_else(|| storage::Error::Corrupt("document body"))??;
        if self.conflicts
            && let Some(tree) = head.tree()?
        {
            write_leaves("_conflicts", &tree, &rev, false, out);
        }
        out.push(b'}');
        if self.watch.is_some() {
            self.censor(id, start, out);
            self.placement.forget_absent(first, &out[start..]);
        }
        Ok(())
    }

    fn censor(&self, id: &str, start: usize, out: &mut Vec<u8>) {
        if let Some(watch) = &self.watch {
            watch.censor(id, start, out);
        }
    }

    pub(super) fn write_key(
        &mut self,
        key: KeyRef<'_>,
        sharding: Sharding,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        separate(&mut self.first, out);
        let id = match key {
            KeyRef::Id(id) => id,
            KeyRef::Other(json) => {
                out.extend_from_slice(b"{\"key\":");
                out.extend_from_slice(json.as_bytes());
                out.extend_from_slice(b",\"error\":\"not_found\"}");
                return Ok(());
            }
        };
        // By keys all shards are seen.
        let at = sharding.index_of(id);
        let (shard, view) = (&self.views.shards[at], &self.views.views[at]);
        if id.starts_with("_local/") {
            // A user's own ones are under other ids, and not listed.
            if self.reader.is_none()
                && let Some(value) = view.local(shard, id)?
            {
                return self.write_local(id.as_bytes(), &value, out);
            }
        } else if let Some(reader) = &self.reader {
            if let Some(value) = reader.listed(view, shard, id)? {
                return self.write_found(at, id, &value, out);
            }
        } else if let Some(value) = view.record_value(shard, id)? {
            return self.write_found(at, id, &value, out);
        }
        out.extend_from_slice(b"{\"key\":");
        write_json_string(id, out);
        out.extend_from_slice(b",\"error\":\"not_found\"}");
        Ok(())
    }

    /// Appends the row of a requested document with this record.
    fn write_found(
        &self,
        shard: usize,
        id: &str,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let head = RecordHead::decode(value)?;
        if !head.deleted {
            return self.write_row(shard, id.as_bytes(), value, out);
        }
        write_id_and_key(id, out);
        out.extend_from_slice(b",\"value\":{\"rev\":");
        head.winner.write_json_to(out);
        out.extend_from_slice(b",\"deleted\":true}");
        if self.include_docs {
            out.extend_from_slice(b",\"doc\":null");
        }
        out.push(b'}');
        Ok(())
    }
}

pub(super) fn separate(first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.extend_from_slice(b",\r\n");
    }
}

fn write_id_and_key(id: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    let start = out.len();
    write_json_string(id, out);
    let end = out.len();
    out.extend_from_slice(b",\"key\":");
    out.extend_from_within(start..end);
}

/// Appends a stored document without its closing brace, its attachments as stubs.
pub(crate) fn write_members(id: &str, rev: &Rev, deleted: bool, body: &[u8], out: &mut Vec<u8>) {
    let stored = StoredBody::split(body);
    document::with_members(id, rev, deleted, stored.json, out);
    if let Some(attachments) = stored.attachments() {
        document::attachment::write_stubs(&attachments, out);
    }
}
