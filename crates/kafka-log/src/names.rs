//! Topics' names, and which partition a slot is.

use cluster::{CONTROL, SlotNumber};

/// Maximum length of a cluster's name: Kafka allows 249 characters in a topic's.
const CLUSTER_NAME_MAX: usize = 100;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub topic: std::sync::Arc<str>,
    pub partition: i32,
}

/// The topics of one log.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub slots: std::sync::Arc<str>,
    pub control: std::sync::Arc<str>,
    slot_count: SlotNumber,
}

impl Names {
    pub fn new(cluster: &str, log: u64, slot_count: SlotNumber) -> Names {
        Names {
            slots: format!("settee.{cluster}.{log}.slots").into(),
            control: format!("settee.{cluster}.{log}.control").into(),
            slot_count,
        }
    }

    /// Returns the place of a slot's records; `None` when there is no such slot.
    pub fn place(&self, slot: SlotNumber) -> Option<Place> {
        let (topic, partition) = match slot {
            CONTROL => (&self.control, 0),
            slot if slot < self.slot_count => (&self.slots, i32::from(slot)),
            _ => return None,
        };
        Some(Place {
            topic: topic.clone(),
            partition,
        })
    }

    /// Returns an index from 0, the control slot last; `None` when there is no such slot.
    pub fn index(&self, slot: SlotNumber) -> Option<usize> {
        match slot {
            CONTROL => Some(usize::from(self.slot_count)),
            slot if slot < self.slot_count => Some(usize::from(slot)),
            _ => None,
        }
    }

    /// Returns the number of slots, including the control slot.
    pub fn count(&self) -> usize {
        usize::from(self.slot_count) + 1
    }
}

/// Letters, digits, `_` and `-`: a dot would make two readings of a topic's name.
pub(crate) fn is_cluster_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=CLUSTER_NAME_MAX).contains(&name.len()) && name.chars().all(fits)
}

/// Returns the number of the log that this topic of slots belongs to.
pub(crate) fn log_number(cluster: &str, topic: &str) -> Option<u64> {
    let rest = topic.strip_prefix("settee.")?.strip_prefix(cluster)?;
    let number = rest.strip_prefix('.')?.strip_suffix(".slots")?;
    let log: u64 = number.parse().ok()?;
    (log.to_string() == number).then_some(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topics_name_carries_the_logs_number() {
        let names = Names::new("shop", 7, 16);
        assert_eq!(log_number("shop", &names.slots), Some(7));
        assert_eq!(log_number("shop", &names.control), None);
        assert_eq!(log_number("sho", &names.slots), None);
        assert_eq!(log_number("shop", "settee.shop.07.slots"), None);
        assert_eq!(log_number("shop", "settee.shop.x.slots"), None);
    }

    #[test]
    fn slots_are_partitions_and_the_control_slot_has_a_topic() {
        let names = Names::new("shop", 7, 16);
        assert_eq!(names.place(15).unwrap().partition, 15);
        assert_eq!(names.place(16), None);
        assert_eq!(
            &*names.place(CONTROL).unwrap().topic,
            "settee.shop.7.control"
        );
        assert_eq!(names.index(CONTROL), Some(16));
    }

    #[test]
    fn a_clusters_name_has_no_dots() {
        assert!(is_cluster_name("a-Shop_1"));
        assert!(!is_cluster_name("a.shop"));
        assert!(!is_cluster_name(""));
    }
}
