//! Requests for records: answered here, or by a log node.

use cluster::NodeId;

use super::core::{Core, Effect};
use super::group::{Parked, Reader, Search, Wait};
use crate::disk::LogDisk;
use crate::message::{FetchRequest, Fetched, NodeMessage, Purpose};
use crate::options::PARK_TICKS;

impl<D: LogDisk> Core<D> {
    /// Requests records, and returns the number of the request: [`Effect::Fetched`] reports the
    /// answer, always. At the end of the log it waits for a record, for a while.
    pub fn fetch(&mut self, request: FetchRequest) -> u64 {
        let number = self.fetches.new_number();
        self.search(request, Reader::Here { number });
        number
    }

    pub(super) fn search(&mut self, request: FetchRequest, reader: Reader) {
        let parked = Parked {
            request,
            reader,
            wait: Wait::Record,
            until: self.now + PARK_TICKS,
        };
        self.search_again(parked);
    }

    fn search_again(&mut self, parked: Parked) {
        let Parked {
            request,
            reader,
            wait,
            until,
        } = parked;
        let is_stalled = self.is_stalled();
        let found = self.with_group(request.slot, |group, now| {
            let applied = group.node.store().state.applied;
            let is_sure = matches!(wait, Wait::Delivery(index) if index <= applied);
            let found = group.search(&request, is_sure)?;
            let wait = match found {
                Search::AtEnd if now < until => Some(Wait::Record),
                // A sign of life of a leader that cannot write would only delay the next one.
                Search::Beyond if now < until && !is_stalled => Some(group.confirm()),
                _ => None,
            };
            let is_waiting = wait.is_some();
            group.parked.extend(wait.map(|wait| Parked {
                request,
                reader,
                wait,
                until,
            }));
            Ok((found, is_waiting))
        });
        let found = match found {
            Some((_, true)) => return,
            found => found.map(|(found, _)| found),
        };
        match found {
            Some(Search::Found(fetched)) => self.give(reader, fetched),
            Some(Search::Beyond) => self.give(reader, Fetched::Unavailable),
            Some(Search::AtEnd) => {
                let (start, end) = self.bounds(request.slot).unwrap_or_default();
                let records = vec![];
                self.give(
                    reader,
                    Fetched::Found {
                        start,
                        end,
                        records,
                    },
                );
            }
            Some(Search::Unsure) | None => self.pass_on(request, reader),
        }
    }

    /// Sends a request of this process to another node.
    fn pass_on(&mut self, request: FetchRequest, reader: Reader) {
        let to = match reader {
            Reader::Here { number } => self.fetch_target(&request).map(|to| (to, number)),
            // A request is not passed on twice.
            Reader::There { .. } => None,
        };
        match to {
            None => self.give(reader, Fetched::Unavailable),
            Some((to, number)) => {
                self.fetches.note_sent(number, self.now);
                self.send(to, NodeMessage::Fetch { number, request });
            }
        }
    }

    fn fetch_target(&self, request: &FetchRequest) -> Option<NodeId> {
        let leader = self.leader_node(request.slot);
        let leader = leader.filter(|node| *node != self.options.me.node);
        match request.purpose {
            Purpose::ReadBack { .. } if self.is_open(request.slot) => leader,
            _ => leader.or_else(|| self.any_log_node()),
        }
    }

    /// Notes the answer of another node.
    pub(super) fn fetched(&mut self, number: u64, fetched: Fetched) {
        if self.fetches.note_answer(number) {
            self.effects.push(Effect::Fetched { number, fetched });
        }
    }

    pub(super) fn give(&mut self, reader: Reader, fetched: Fetched) {
        match reader {
            Reader::Here { number } => self.effects.push(Effect::Fetched { number, fetched }),
            Reader::There { node, number } => {
                self.send(node, NodeMessage::Fetched { number, fetched });
            }
        }
    }

    /// Answers requests that waited for records of groups which have new ones, or too long.
    pub(super) fn serve_parked(&mut self) {
        let now = self.now;
        let mut due = vec![];
        for group in self.groups.values_mut() {
            if !group.parked.iter().any(|it| group.is_due(it, now)) {
                continue;
            }
            let parked = std::mem::take(&mut group.parked);
            let (over, waiting) = parked.into_iter().partition(|it| group.is_due(it, now));
            group.parked = waiting;
            due.extend(over);
        }
        for parked in due {
            match parked.wait {
                Wait::Majority(_) => self.give(parked.reader, Fetched::Unavailable),
                Wait::Record | Wait::Delivery(_) => self.search_again(parked),
            }
        }
    }

    pub(super) fn expire_fetches(&mut self) {
        self.serve_parked();
        for number in self.fetches.expire(self.now) {
            let fetched = Fetched::Unavailable;
            self.effects.push(Effect::Fetched { number, fetched });
        }
    }
}
