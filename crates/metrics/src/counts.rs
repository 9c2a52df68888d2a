//! Counters of requests that are over.

use std::time::Duration;

use hdrhistogram::Histogram;
use routes::{CLASSES, Class};
use telemetry::{Use, distribution};

use crate::completed::{CompletedRequest, End};
use crate::usage::Usage;

/// The methods that are counted separately; others are the last.
pub const METHODS: [&str; 8] = [
    "COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "other",
];
/// Statuses that an answer can have.
const STATUS_MIN: u16 = 100;
const STATUS_MAX: u16 = 599;

/// Counters of requests.
#[derive(Clone)]
pub struct Counts {
    /// Requests that were answered, or whose clients had gone before.
    pub requests: u64,
    /// Requests by method.
    pub methods: [u64; METHODS.len()],
    /// Responses by status.
    statuses: Vec<u64>,
    /// Requests whose clients went before they had the whole answer.
    pub aborted: u64,
    /// Responses that were cut because of an error in the middle.
    pub cut: u64,
    /// Requests that are over.
    pub ended: u64,
    /// Bytes of answers' bodies.
    pub bytes_sent: u64,
    /// Bytes of requests' bodies.
    pub bytes_received: u64,
    /// Documents read one by one.
    pub document_reads: u64,
    /// Requests for a partition, by class.
    of_partitions: [u64; CLASSES.len()],
    /// Requests by class.
    routes: Vec<Option<Box<ClassCounts>>>,
    /// Documents of `_bulk_docs` requests.
    pub bulk_docs: Histogram<u64>,
    /// By database and by view.
    pub usage: Usage,
}

/// Requests of a class.
#[derive(Clone)]
pub struct ClassCounts {
    /// Time to the end of the body, in microseconds.
    pub whole_us: Histogram<u64>,
    /// Responses with a status of 500 and above.
    pub failed: u64,
    /// Responses with a status of 400 to 499.
    pub refused: u64,
}

impl ClassCounts {
    fn new() -> ClassCounts {
        ClassCounts {
            whole_us: distribution(),
            failed: 0,
            refused: 0,
        }
    }

    fn add(&mut self, other: &ClassCounts) {
        add(&mut self.whole_us, &other.whole_us);
        self.failed += other.failed;
        self.refused += other.refused;
    }
}

/// Adds a histogram to one with the same bounds.
fn add(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    if let Err(e) = to.add(from) {
        tracing::error!(error = %e, "histograms of different bounds");
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            requests: 0,
            methods: [0; METHODS.len()],
            statuses: vec![0; usize::from(STATUS_MAX - STATUS_MIN + 1)],
            aborted: 0,
            cut: 0,
            ended: 0,
            bytes_sent: 0,
            bytes_received: 0,
            document_reads: 0,
            of_partitions: [0; CLASSES.len()],
            routes: CLASSES.iter().map(|_| None).collect(),
            bulk_docs: distribution(),
            usage: Usage::default(),
        }
    }
}

impl Counts {
    /// Adds all counters but those of used databases and indexes.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.aborted += other.aborted;
        self.cut += other.cut;
        self.ended += other.ended;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.document_reads += other.document_reads;
        for (to, from) in self.of_partitions.iter_mut().zip(&other.of_partitions) {
            *to += from;
        }
        for (to, from) in self.methods.iter_mut().zip(&other.methods) {
            *to += from;
        }
        for (to, from) in self.statuses.iter_mut().zip(&other.statuses) {
            *to += from;
        }
        for (to, from) in self.routes.iter_mut().zip(&other.routes) {
            if let Some(from) = from {
                to.get_or_insert_with(|| Box::new(ClassCounts::new()))
                    .add(from);
            }
        }
        add(&mut self.bulk_docs, &other.bulk_docs);
    }

    /// Counts a request that ended `since_start` after the server's start.
    pub(crate) fn count(&mut self, request: &CompletedRequest<'_>, since_start: Duration) {
        let class = request.class;
        self.head(request.method, request.status);
        self.ended += 1;
        self.bytes_sent += request.bytes_sent;
        self.bytes_received += request.bytes_received;
        self.document_reads += request.document_reads;
        if request.is_of_partition {
            self.of_partitions[class as usize] += 1;
        }
        if let Some(docs) = request.bulk_docs {
            self.bulk_docs.saturating_record(docs.max(1));
        }
        match request.end {
            End::Whole => {}
            // A feed continues until its client disconnects.
            End::Aborted if class.is_feed() => {}
            End::Aborted => self.aborted += 1,
            End::Cut => self.cut += 1,
        }
        let of = self.of_route(class);
        of.whole_us.saturating_record(request.us.max(1));
        match request.status {
            500.. => of.failed += 1,
            400.. => of.refused += 1,
            _ => {}
        }
        self.count_usage(request, since_start);
    }

    fn count_usage(&mut self, request: &CompletedRequest<'_>, since_start: Duration) {
        let Some(database) = request.database else {
            return;
        };
        let class = request.class;
        let used = Use {
            requests: 1,
            writes: u64::from(class.writes(request.method)),
            us: if class.is_feed() { 0 } else { request.us },
            bytes: request.bytes_sent + request.bytes_received,
            ..Use::default()
        };
        self.usage.databases.count(database, &used, since_start);
        if let Some(view) = request.view {
            self.usage.views.count(view, &used, since_start);
        }
    }

    /// Counts a response's head.
    fn head(&mut self, method: &str, status: u16) {
        self.method(method);
        if let Some(n) = self
            .statuses
            .get_mut(usize::from(status.wrapping_sub(STATUS_MIN)))
        {
            *n += 1;
        }
    }

    fn method(&mut self, method: &str) {
        self.requests += 1;
        let others = METHODS.len() - 1;
        let at = METHODS[..others].binary_search(&method).unwrap_or(others);
        self.methods[at] += 1;
    }

    fn of_route(&mut self, route: Class) -> &mut ClassCounts {
        self.routes[route as usize].get_or_insert_with(|| Box::new(ClassCounts::new()))
    }

    /// Statuses that were answered, with how often.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (STATUS_MIN..=STATUS_MAX).zip(self.statuses.iter().copied())
    }

    /// How often a status was answered.
    pub fn status(&self, status: u16) -> u64 {
        let at = usize::from(status.wrapping_sub(STATUS_MIN));
        self.statuses.get(at).copied().unwrap_or(0)
    }

    /// The classes that had requests.
    pub fn routes(&self) -> impl Iterator<Item = (Class, &ClassCounts)> {
        let all = CLASSES.iter().copied().zip(&self.routes);
        all.filter_map(|(route, of)| Some((route, of.as_deref()?)))
    }

    /// Time of all requests but feeds to the end of their answers' bodies, in microseconds.
    pub fn request_us(&self) -> Histogram<u64> {
        let mut all = distribution();
        let routes = self.routes().filter(|(route, _)| !route.is_feed());
        routes.for_each(|(_, of)| add(&mut all, &of.whole_us));
        all
    }

    /// Counters of a class, if it had requests.
    pub fn route(&self, route: Class) -> Option<&ClassCounts> {
        self.routes[route as usize].as_deref()
    }

    /// Requests of a class for a partition.
    pub fn of_partitions(&self, route: Class) -> u64 {
        self.of_partitions[route as usize]
    }

    /// Requests of a class that are over.
    pub fn of(&self, route: Class) -> u64 {
        self.route(route).map_or(0, |of| of.whole_us.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_are_searched_are_sorted() {
        assert!(METHODS[..METHODS.len() - 1].is_sorted());
    }

    #[test]
    fn every_status_and_method_counts() {
        let mut counts = Counts::default();
        for status in [100, 299, 417, 508, 599, 600, 99, 0, u16::MAX] {
            counts.head("PATCH", status);
        }
        assert_eq!(counts.requests, 9);
        assert_eq!(counts.methods[METHODS.len() - 1], 9);
        assert_eq!(counts.statuses().map(|(_, n)| n).sum::<u64>(), 5);
        assert_eq!(counts.status(508), 1);
    }
}
