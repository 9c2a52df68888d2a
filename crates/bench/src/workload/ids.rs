//! Ids in several orders: time to write and to compact, and space.

use std::time::Duration;

use super::{Outcome, Workload};
use crate::data_folders::{folder_bytes, folders};
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::slice::Slice;
use crate::system::{BULK_DOCS, Fill, System, WorkloadPart};

/// One client writes the same documents by `_bulk_docs` with sequential ids, with ids sorted by
/// time, and with random ids, and compacts each database.
pub(crate) struct IdOrders {
    pub(crate) documents: u64,
    /// Each repeat begins with another order: the first one finds another machine and store.
    pub(crate) repeat: u32,
}

/// An order of ids, and the names of its lines.
struct OrderLines {
    order: Order,
    written: &'static str,
    compacted: &'static str,
}

static ORDERS: [OrderLines; 3] = [
    OrderLines {
        order: Order::Sequential,
        written: "ids_sequential",
        compacted: "ids_sequential_compaction",
    },
    OrderLines {
        order: Order::Time,
        written: "ids_by_time",
        compacted: "ids_by_time_compaction",
    },
    OrderLines {
        order: Order::Random,
        written: "ids_random",
        compacted: "ids_random_compaction",
    },
];

/// Name, unit, value.
type Figures = Vec<(String, &'static str, f64)>;

impl IdOrders {
    /// All orders, beginning at that of the repeat.
    fn orders(&self) -> impl Iterator<Item = &'static OrderLines> {
        let first = self.repeat as usize % ORDERS.len();
        ORDERS.iter().cycle().skip(first).take(ORDERS.len())
    }

    /// Writes the documents, and compacts them.
    async fn measure(
        &self,
        system: &System,
        lines: &OrderLines,
        figures: &mut Figures,
    ) -> Result<[WorkloadPart; 2], BenchError> {
        let database = system.create(lines.written).await?;
        let folders = folders(system).await?;
        if !folders.is_empty() {
            // The space of the database before is reclaimed after the response.
            system.rest().await?;
        }
        let before = folder_bytes(&folders);
        let grown = || {
            let grown = folder_bytes(&folders)?.checked_sub(before?)?;
            Some(grown as f64)
        };
        let ids = Ids::new(lines.order);
        let fill = Fill {
            database: &database,
            shape: Shape::Bytes75,
            ids: &ids,
            documents: self.documents,
            bulk: BULK_DOCS,
            clients: 1,
        };
        let written = system
            .part(lines.written, "docs", system.fill(fill))
            .await?;
        push_sizes(system, figures, lines.written, &database, ("", grown())).await?;
        let compacted = self.compact(system, lines.compacted, &database).await?;
        let when = (" after compaction", grown());
        push_sizes(system, figures, lines.written, &database, when).await?;
        if lines.order == Order::Sequential && written.slice.errors.count == 0 {
            system.remember(Shape::Bytes75, self.documents, database, ids);
        }
        Ok([written, compacted])
    }

    async fn compact(
        &self,
        system: &System,
        name: &'static str,
        database: &str,
    ) -> Result<WorkloadPart, BenchError> {
        let compacting = async {
            let took = system.compact(database).await?;
            let mut slice = Slice::new();
            slice.record(self.documents, took);
            slice.seconds = took.as_secs_f64();
            Ok::<Slice, BenchError>(slice)
        };
        system.part(name, "docs", compacting).await
    }
}

impl Workload for IdOrders {
    type State = Figures;

    fn rounds(&self) -> u32 {
        1
    }

    async fn prepare(&self, _system: &System) -> Result<Figures, BenchError> {
        Ok(Vec::new())
    }

    async fn round(
        &self,
        system: &System,
        state: &mut Figures,
        _length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let mut parts = Vec::new();
        for lines in self.orders() {
            parts.extend(self.measure(system, lines, state).await?);
        }
        Ok(parts)
    }

    async fn finish(&self, _side: &System, state: Figures) -> Result<Outcome, BenchError> {
        let note = "ids: sizes.file and sizes.active are what the server reports; before a compaction sizes.file \
                    may leave out what is in the log and in memory only. growth is of everything in the data folder";
        Ok(Outcome {
            figures: state,
            notes: vec![note.to_owned()],
        })
    }
}

/// Adds the sizes that the server reports, and the growth of its data folder if that is known.
async fn push_sizes(
    system: &System,
    figures: &mut Figures,
    line: &str,
    database: &str,
    (when, grown): (&str, Option<f64>),
) -> Result<(), BenchError> {
    let (file, active) = system.sizes(database).await?;
    let named = [
        ("sizes.file", file),
        ("sizes.active", active),
        ("growth of the data folder", grown),
    ];
    figures.extend(
        named
            .into_iter()
            .filter_map(|(what, value)| Some((format!("{line} {what}{when}"), "bytes", value?))),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repeat_has_all_orders_and_begins_with_another() {
        let firsts = (0..3).map(|repeat| {
            let orders = IdOrders {
                documents: 1,
                repeat,
            };
            let names: Vec<&str> = orders.orders().map(|lines| lines.written).collect();
            let mut all = names.clone();
            all.sort_unstable();
            assert_eq!(all, ["ids_by_time", "ids_random", "ids_sequential"]);
            names[0]
        });
        assert_eq!(
            firsts.collect::<Vec<_>>(),
            ["ids_sequential", "ids_by_time", "ids_random"]
        );
    }
}
