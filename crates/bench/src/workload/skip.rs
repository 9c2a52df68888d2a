//! `skip` far into a large database against the same share of a small one.

use std::time::Duration;

use super::Workload;
use super::read::repeat;
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop};
use crate::system::{FilledDatabase, System, WorkloadPart};

/// `_all_docs?skip=…&limit=1`, where skip is nine tenths of the documents.
pub(crate) struct Skip {
    pub(crate) small: u64,
    pub(crate) large: u64,
}

impl Workload for Skip {
    type State = (FilledDatabase, FilledDatabase);

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<Self::State, BenchError> {
        Ok((
            system.populated(Shape::Bytes75, self.small).await?,
            system.populated(Shape::Bytes75, self.large).await?,
        ))
    }

    async fn round(
        &self,
        system: &System,
        (small, large): &mut Self::State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let mut parts = Vec::new();
        // At a smaller scale the names stay those of the full sizes, so that reports can be compared.
        for (name, populated) in [("skip_of_10000", small), ("skip_of_1000000", large)] {
            let skip = populated.documents / 10 * 9;
            let path = format!("/{}/_all_docs?skip={skip}&limit=1", populated.database);
            let request = system.target.request("GET", &path, None);
            let reading =
                ClosedLoop::timed(&system.target, length, Check::Rows(br#""value":{"rev":"#));
            parts.push(
                system
                    .part(name, "req", reading.run(1, repeat(request, 1)))
                    .await?,
            );
        }
        Ok(parts)
    }
}
