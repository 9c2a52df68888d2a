//! Clients, and the guarantees given to them.

use super::*;

impl World {
    /// Lets a client start its next operation, or give one up.
    pub(super) fn client(&mut self, client: u64) {
        let wait = self.rng.u64(5..60);
        self.at(wait, Event::Client { client });
        let under_way = self.operations.iter().find(|(_, o)| o.client == client);
        if let Some((&number, operation)) = under_way {
            if self.now - operation.asked > CLIENT_PATIENCE_MS {
                let operation = operation.clone();
                self.ask_again(number, operation);
            }
            return;
        }
        let key = self.rng.u8(..KEYS);
        self.next_operation += 1;
        let number = self.next_operation;
        let value = self.rng.bool().then_some(number);
        let operation = Operation {
            client,
            key,
            value,
            tries: 0,
            asked: self.now,
            floor: self.floors.get(&key).copied().unwrap_or(0),
        };
        self.ask_again(number, operation);
    }

    /// Sends an operation to some node. A write keeps its number, a read starts over.
    pub(super) fn ask_again(&mut self, number: u64, mut operation: Operation) {
        operation.tries += 1;
        operation.asked = self.now;
        if operation.tries > 3 && operation.value.is_none() {
            self.operations.remove(&number);
            return;
        }
        if operation.tries > 6 {
            self.operations.remove(&number);
            return;
        }
        let count = self.nodes.len() as u64;
        let node = self.rng.u64(1..=count);
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let (key, client, value) = (operation.key, operation.client, operation.value);
        self.operations.insert(number, operation);
        let Some(replica) = &it.replica else { return };
        if it.paused_until > self.now {
            return;
        }
        let Some(value) = value else {
            return self.begin_read(node, number);
        };
        let Some(generation) = replica.proposes_in() else {
            return;
        };
        let has_content = self.rng_percent(self.profile.contents);
        let content = has_content.then_some(number);
        if let Some(content) = content
            && !self.stage(node, content)
        {
            return;
        }
        let request = (client, number);
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        it.waiting.insert(request, number);
        *self.counters.entry(client).or_default() += 1;
        let header = Header {
            generation,
            kind: Kind::Data,
        };
        self.propose(
            node,
            header,
            vec![Write {
                request,
                key,
                value,
                content,
            }],
        );
    }

    /// Lets a node read for an operation, which may have requested that here before.
    fn begin_read(&mut self, node: NodeId, number: u64) {
        if self.rng.bool() {
            self.give_up_reads(node, number);
        }
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        self.next_read += 1;
        let read = self.next_read;
        it.reads.insert(read, (number, None));
        self.give(node, Input::Read(read));
    }

    /// Forgets what an operation requested here before.
    fn give_up_reads(&mut self, node: NodeId, number: u64) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let of_it = it.reads.iter().filter(|(_, (of, _))| *of == number);
        let mut given_up: Vec<u64> = of_it.map(|(read, _)| *read).collect();
        given_up.sort_unstable();
        given_up.iter().for_each(|read| {
            it.reads.remove(read);
        });
        self.give(node, Input::GivenUp(given_up));
    }

    pub(super) fn read_now(&mut self, node: NodeId, read: u64) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let Some(&(number, _)) = it.reads.get(&read) else {
            return;
        };
        let Some(operation) = self.operations.get(&number) else {
            return;
        };
        let key = operation.key;
        let lineage = &it.disk.store.lineage;
        let last = lineage.iter().rposition(|w| w.key == key);
        let seen = Seen {
            key,
            place: last.map_or(0, |at| at + 1),
            value: last.map(|at| lineage[at].value),
        };
        let content = last.and_then(|at| lineage[at].content);
        if content.is_some_and(|content| !it.disk.contents.contains_key(&content)) {
            return self.violate(format!("a read of key {key} at {node} misses its content"));
        }
        it.reads.insert(read, (number, Some(seen)));
        let position = it.disk.saved.cursor.position;
        self.give(
            node,
            Input::WasRead {
                read,
                generation: position.generation,
                next_offset: position.next_offset,
            },
        );
    }

    pub(super) fn read_done(&mut self, node: NodeId, read: u64) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let Some((number, Some(Seen { key, place, value }))) = it.reads.remove(&read) else {
            return;
        };
        let Some(operation) = self.operations.remove(&number) else {
            return;
        };
        self.reads += 1;
        if place < operation.floor {
            return self.violate(format!(
                "a read of key {key} at {node} saw the write at {place} ({value:?}), but {} was acknowledged before it began",
                operation.floor
            ));
        }
        let agreed = place.checked_sub(1).map(|at| self.agreed.get(at));
        if let Some(write) = agreed
            && write.map(|w| (w.key, Some(w.value))) != Some((key, value))
        {
            return self.violate(format!(
                "a read at {node} showed {value:?} of key {key}, which is not there to stay"
            ));
        }
        let floor = self.floors.entry(key).or_default();
        *floor = (*floor).max(place);
    }

    /// A replica shows everything before an offset: all others have to show the same.
    pub(super) fn stable(&mut self, node: NodeId, generation: Generation, next_offset: u64) {
        let Some(it) = self.nodes.get(&node) else {
            return;
        };
        let store = &it.disk.store;
        let Some(length) = store.length(generation, next_offset) else {
            return self.violate(format!(
                "{node} shows what is not on its disk, before {next_offset} of {generation:?}"
            ));
        };
        let shown = store.lineage[..length].to_vec();
        let both = shown.len().min(self.agreed.len());
        if shown[..both] != self.agreed[..both] {
            let at = (0..both)
                .find(|&at| shown[at] != self.agreed[at])
                .unwrap_or(0);
            return self.violate(format!(
                "{node} shows {:?} at {at}, another showed {:?}",
                shown[at], self.agreed[at]
            ));
        }
        let mut twice = BTreeSet::new();
        if let Some(write) = shown.iter().find(|w| !twice.insert(w.request)) {
            return self.violate(format!("{node} applied {write:?} twice"));
        }
        if shown.len() > self.agreed.len() {
            self.agreed = shown;
        }
        self.is_on_a_majority(node, generation, next_offset);
        self.contents_are_on_a_majority(node, generation, next_offset);
        self.is_at_all_later(node, generation, next_offset);
        self.acknowledge(node);
    }

    /// Acknowledges the writes that are stable, as this node sees it.
    pub(super) fn acknowledge(&mut self, node: NodeId) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let agreed = &self.agreed;
        let stable = it.replica.as_ref().map_or(0, Replica::stable);
        let generation = it.disk.saved.cursor.position.generation;
        let length = it.disk.store.length(generation, stable).unwrap_or(0);
        let shown = &it.disk.store.lineage[..length];
        let mut done = vec![];
        it.waiting.retain(|request, number| {
            let Some(at) = shown.iter().position(|w| w.request == *request) else {
                return true;
            };
            done.push((*number, at, shown[at].clone()));
            false
        });
        let mut lost = None;
        for (number, at, write) in done {
            if agreed.get(at) != Some(&write) {
                lost = Some(write);
                break;
            }
            if self.operations.remove(&number).is_none() {
                continue;
            }
            self.acknowledged += 1;
            if self.healed {
                self.after.insert(node);
            }
            let floor = self.floors.entry(write.key).or_default();
            *floor = (*floor).max(at + 1);
        }
        if let Some(write) = lost {
            self.violate(format!("{write:?} was acknowledged and is not there"));
        }
    }
}
