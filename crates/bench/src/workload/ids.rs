//! Random against sequential document ids: time to write, and space on disk.

use std::time::Duration;

use super::{Outcome, Workload};
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::system::{BULK_DOCS, Fill, System, WorkloadPart};

/// The same documents once with sequential and once with random ids, over `_bulk_docs`, one client.
pub(crate) struct IdOrders {
    pub(crate) documents: u64,
}

pub(crate) struct Databases {
    sequential: String,
    random: String,
    figures: Vec<(String, &'static str, f64)>,
}

impl IdOrders {
    async fn write(
        &self,
        system: &System,
        name: &'static str,
        database: &str,
        ids: &Ids,
    ) -> Result<WorkloadPart, BenchError> {
        let fill = Fill {
            database,
            shape: Shape::Bytes75,
            ids,
            documents: self.documents,
            bulk: BULK_DOCS,
            clients: 1,
        };
        system.part(name, "docs", system.fill(fill)).await
    }
}

impl Workload for IdOrders {
    type State = Databases;

    fn rounds(&self) -> u32 {
        1
    }

    async fn prepare(&self, system: &System) -> Result<Databases, BenchError> {
        Ok(Databases {
            sequential: system.create("ids_sequential").await?,
            random: system.create("ids_random").await?,
            figures: Vec::new(),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut Databases,
        _length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let sequential = Ids::new(Order::Sequential);
        let name = state.sequential.clone();
        let first = self
            .write(system, "ids_sequential", &name, &sequential)
            .await?;
        if first.slice.errors.count == 0 {
            system.remember(Shape::Bytes75, self.documents, name, sequential);
        }
        let random = Ids::new(Order::Random);
        let second = self
            .write(system, "ids_random", &state.random, &random)
            .await?;
        for (line, database) in [
            ("ids_sequential", &state.sequential),
            ("ids_random", &state.random),
        ] {
            push_sizes(system, &mut state.figures, line, database, "").await?;
        }
        Ok(vec![first, second])
    }

    async fn finish(&self, system: &System, mut state: Databases) -> Result<Outcome, BenchError> {
        for (line, database) in [
            ("ids_sequential", &state.sequential),
            ("ids_random", &state.random),
        ] {
            system.compact(database).await?;
            push_sizes(
                system,
                &mut state.figures,
                line,
                database,
                " after compaction",
            )
            .await?;
        }
        Ok(Outcome {
            figures: state.figures,
            ..Outcome::default()
        })
    }
}

async fn push_sizes(
    system: &System,
    figures: &mut Vec<(String, &'static str, f64)>,
    line: &str,
    database: &str,
    when: &str,
) -> Result<(), BenchError> {
    let (file, active) = system.sizes(database).await?;
    let named = [("bytes on disk", file), ("bytes active", active)];
    figures.extend(
        named
            .into_iter()
            .filter_map(|(what, value)| Some((format!("{line} {what}{when}"), "bytes", value?))),
    );
    Ok(())
}
