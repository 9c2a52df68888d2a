//! The workloads, and their measurement: prepared on every server, then in interleaved rounds.

mod attachments;
mod bulk;
mod catalogue;
mod cluster;
mod definition;
mod disk;
mod fairness;
mod find;
mod flooded;
mod ids;
mod lightning;
mod many_dbs;
mod named;
mod operations;
mod own;
mod read;
mod replication;
mod saturated;
mod single;
mod skip;
mod stream;
mod urls;
mod views;

use std::rc::Rc;
use std::time::Duration;

pub use catalogue::{Description, workloads};
pub use operations::Mix;
pub use own::OwnData;
pub use urls::UrlList;

pub(crate) use catalogue::{RATIOS, select};
pub(crate) use definition::{Outcome, ROUNDS, Workload};
pub(crate) use disk::append_and_sync;
pub(crate) use named::check_faults;
pub(crate) use operations::Caller;
pub(crate) use read::repeat;
pub(crate) use saturated::alone;
pub(crate) use views::check_languages;

use crate::competitor::Competitor;
use crate::documents::Shape;
use crate::error::BenchError;
use crate::faults::Launch;
use crate::gather::Gatherer;
use crate::options::{BenchOptions, Embedded};
use crate::report::Report;
use crate::stand_in::StandIn;
use crate::sweep_plan::Plan;
use crate::swept_setting::PriorSetting;
use crate::system::System;
use crate::timeline::Events;

/// Workloads of `_bulk_docs`: name, documents, how many a request, and how many clients.
const BULKS: [(&str, Shape, u64, usize); 6] = [
    ("bulk_doc_100", Shape::Foo, 100, 1),
    ("bulk_doc_1000", Shape::Foo, 1_000, 1),
    ("bulk_doc_5000", Shape::Foo, 5_000, 1),
    ("bulk_doc_10000", Shape::Foo, 10_000, 1),
    ("bulk_parallel", Shape::Foo, 1_000, 10),
    ("bulk_300", Shape::Bytes300, 1_000, 1),
];

/// A run in progress.
pub(crate) struct Bench {
    pub(crate) options: BenchOptions,
    pub(crate) systems: Vec<System>,
    /// In a run with one server: a second one, for workloads that need two.
    pub(crate) second: Option<System>,
    pub(crate) report: Report,
    pub(crate) competitor: Option<Competitor>,
    /// As many connections as the limit of open files allows.
    pub(crate) connections_max: usize,
    pub(crate) embedded: Option<Box<dyn Embedded>>,
    /// Measurements of the current workload so far.
    pub(crate) gathering: Gatherer,
    /// The repeat of the current workload, counted from 0.
    pub(crate) repeat: u32,
    /// The clock of the run, and its events so far.
    pub(crate) clock: Rc<Events>,
    pub(crate) sweep: Option<Plan>,
    /// Settings to restore.
    pub(crate) changed: Vec<PriorSetting>,
    /// How a server is started for each value of the sweep, or for each repeat; `None` where running ones are measured.
    pub(crate) restart: Option<Launch>,
    /// The server that was started for the current value.
    pub(crate) stand_in: Option<StandIn>,
}

impl Bench {
    /// Columns of the report: the servers, and the competitor.
    pub(crate) fn columns(&self) -> usize {
        self.systems.len() + usize::from(self.competitor.is_some())
    }

    /// Measures a workload once.
    pub(crate) async fn measure_named(&mut self, name: &'static str) -> Result<(), BenchError> {
        let connections = self.options.connections;
        if let Some((_, shape, batch, clients)) = BULKS.iter().find(|(bulk, ..)| *bulk == name) {
            let bulk = bulk::Bulk::new(name, *shape, *batch, *clients);
            return self.measure(name, bulk).await;
        }
        match name {
            "single" => {
                let dir = self
                    .options
                    .disk_dir
                    .clone()
                    .unwrap_or_else(std::env::temp_dir);
                self.measure(name, single::Single::beside_raw_disk(dir))
                    .await
            }
            "writers_32" => self.measure(name, single::Single::writers(32)).await,
            "batch_ok" => self.measure(name, single::Single::batch_ok()).await,
            "full_commit" => self.measure(name, single::Single::full_commit()).await,
            "lightning" => self.measure_embedded(),
            "get" => self.measure(name, read::Get { connections }).await,
            "get_random" => {
                let documents = self.scaled(200_000);
                self.measure(
                    name,
                    read::GetRandom {
                        connections,
                        documents,
                    },
                )
                .await
            }
            "changes" => {
                self.measure(name, stream::Stream::changes(self.scaled(200_000)))
                    .await
            }
            "changes_include_docs" => {
                let documents = self.scaled(200_000);
                self.measure(name, stream::Stream::changes_include_docs(documents))
                    .await
            }
            "all_docs" => {
                self.measure(name, stream::Stream::all_docs(self.scaled(200_000)))
                    .await
            }
            _ => self.measure_large(name).await,
        }
    }

    /// Workloads that are about sizes.
    async fn measure_large(&mut self, name: &'static str) -> Result<(), BenchError> {
        let connections = self.options.connections;
        match name {
            "ids" => {
                let documents = self.scaled(1_000_000);
                let repeat = self.repeat;
                self.measure(name, ids::IdOrders { documents, repeat })
                    .await
            }
            "skip" => {
                let (small, large) = (self.scaled(10_000), self.scaled(1_000_000));
                self.measure(name, skip::Skip { small, large }).await
            }
            "saturated" => {
                let wanted = self.scaled(1_024).max(connections as u64) as usize;
                let saturated = saturated::Saturated {
                    connections: wanted.min(self.connections_max),
                    databases: self.scaled(100),
                };
                self.measure(name, saturated).await
            }
            "flooded" => {
                // A connection that is closed and its successor are open at the same time.
                let wanted = self.scaled(2_400) as usize;
                let clients = wanted.min(self.connections_max / 2).max(1);
                self.measure(name, flooded::Flooded { clients }).await
            }
            "many_dbs" => {
                let databases = self.scaled(20_000);
                self.measure(name, many_dbs::ManyDbs { databases }).await
            }
            "replication" => self.measure_replication().await,
            "attachments" => {
                let megabytes = self.scaled(100);
                self.measure(name, attachments::Attachments { megabytes })
                    .await
            }
            "find" => {
                let documents = self.scaled(200_000);
                let find = find::Find {
                    connections,
                    documents,
                };
                self.measure(name, find).await
            }
            _ => self.measure_cluster(name).await,
        }
    }

    /// Workloads that are spread over all nodes.
    async fn measure_cluster(&mut self, name: &'static str) -> Result<(), BenchError> {
        let connections = self.options.connections;
        let documents = self.scaled(100_000);
        match name {
            "cluster_put" => self.measure(name, cluster::Put::by(name, 1)).await,
            "cluster_writers_32" => self.measure(name, cluster::Put::by(name, 32)).await,
            "cluster_bulk" => self.measure(name, cluster::Bulk).await,
            "cluster_get" => {
                let reads = cluster::Get {
                    connections,
                    documents,
                };
                self.measure(name, reads).await
            }
            "cluster_mixed" => self.measure(name, cluster::Mixed { documents }).await,
            _ => self.measure_views(name).await,
        }
    }

    async fn measure_replication(&mut self) -> Result<(), BenchError> {
        let documents = self.scaled(100_000);
        let systems = &self.systems;
        let urls: Vec<&str> = self.options.servers.iter().map(|urls| &*urls[0]).collect();
        for at in self.order(0) {
            let system = &systems[at];
            let second = self.second.as_ref().zip(self.options.second_url.as_deref());
            // Of two servers each pulls from itself: one that gives changes faster would make the other look faster.
            let (other, other_url) = second.unwrap_or((system, urls[at]));
            let from = replication::End {
                system: other,
                url: other_url,
            };
            let to = replication::End {
                system,
                url: urls[at],
            };
            for part in replication::measure(from, to, documents).await? {
                let now_s = self.clock.now_s();
                self.gathering.add(at, self.repeat, now_s, part);
            }
        }
        Ok(())
    }

    async fn measure_views(&mut self, name: &'static str) -> Result<(), BenchError> {
        let connections = self.options.connections;
        let documents = self.scaled(self.options.view_small_docs);
        match name {
            "views_first_build" => {
                let languages = self.options.languages.clone();
                let builds = views::FirstBuilds {
                    documents,
                    languages,
                };
                self.measure(name, builds).await
            }
            "views_declarations" => {
                let languages = self.options.languages.clone();
                let declarations = self.scaled(self.options.view_docs);
                self.measure(name, views::Declarations::new(declarations, languages))
                    .await
            }
            "views_several" => self.measure(name, views::Several { documents }).await,
            "views_rows" => {
                let rows = self.scaled(self.options.view_rows);
                self.measure(name, views::Rows { rows }).await
            }
            "views_read" => {
                let reads = views::ViewReads {
                    connections,
                    documents,
                };
                self.measure(name, reads).await
            }
            "views_while_building" => self.measure(name, views::WhileBuilding { documents }).await,
            "fairness" => {
                let wanted = self.scaled(1_000) as usize;
                let crowd = wanted.min(self.connections_max);
                self.measure(name, fairness::Fairness { documents, crowd })
                    .await
            }
            _ => self.measure_named_only(name).await,
        }
    }

    /// A full size at this run's scale; at least 10.
    fn scaled(&self, full: u64) -> u64 {
        ((full as f64 * self.options.scale).round() as u64).max(10)
    }

    fn measure_embedded(&mut self) -> Result<(), BenchError> {
        let Some(embedded) = self.embedded.as_mut() else {
            self.report.notes.push(
                "lightning: skipped, there is no settee next to settee-bench or in PATH".to_owned(),
            );
            return Ok(());
        };
        let length = Duration::from_secs_f64(self.options.seconds / f64::from(ROUNDS));
        let parts = lightning::measure(&mut **embedded, &self.options, length, ROUNDS)?;
        for part in parts {
            let now_s = self.clock.now_s();
            self.gathering.add(0, self.repeat, now_s, part);
        }
        Ok(())
    }
}
