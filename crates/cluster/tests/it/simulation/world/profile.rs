//! The mix of faults of a seed.

/// The frequencies of events.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Time between two faults.
    pub fault_ms: (u64, u64),
    /// Of 100 faults, the number that elect another leader before any other kind is drawn, and of
    /// changes of replicas after that.
    pub leaders: u32,
    pub changes: u32,
    /// One leader in this many lacks the last records; and one has the log as it was before,
    /// without what came since.
    pub leaders_per_loss: u32,
    pub leaders_per_return: u32,
    /// One in this many may also lack stable records.
    pub leaders_per_accident: u32,
    /// How long an earlier leader is still seen, at most; and the percentage of records that it
    /// accepts meanwhile from nodes that see it.
    pub behind_ms: u64,
    pub deposed: u32,
    /// A crash between two outputs, one in this many.
    pub outputs_per_crash: u32,
    /// Maximum delay of messages, and duration of a copy.
    pub late_ms: u64,
    pub copy_ms: u64,
    /// Everything may be lost, and operators make mistakes.
    pub loses_all: bool,
    /// One node may lose its disk, and is replaced by another one. No other replicas change.
    pub loses_disk: bool,
    /// Number of records at the start.
    pub records_at_start: u64,
    pub records_per_poll: u64,
    /// The percentage of writes that name a content.
    pub contents: u32,
}

impl Profile {
    pub fn of(seed: u64) -> Profile {
        let contents = if seed / 6 % 3 == 1 { 40 } else { 0 };
        let profile = Profile {
            contents,
            ..Profile::by_kind(seed % 6)
        };
        // Kinds of faults without changes of replicas, and without the loss of everything.
        if seed % 25 == 8 && matches!(seed % 6, 0 | 1 | 3 | 4) {
            return Profile {
                loses_disk: true,
                contents: 40,
                ..profile
            };
        }
        match seed % 250 {
            // More than are always kept.
            50..54 => Profile {
                records_at_start: 5_000,
                records_per_poll: 400,
                ..profile
            },
            _ => profile,
        }
    }

    fn usual() -> Profile {
        Profile {
            fault_ms: (50, 700),
            leaders: 0,
            changes: 0,
            leaders_per_loss: 4,
            leaders_per_return: 4,
            leaders_per_accident: 10,
            behind_ms: 800,
            deposed: 5,
            outputs_per_crash: 20_000,
            late_ms: 400,
            copy_ms: 200,
            loses_all: false,
            loses_disk: false,
            records_at_start: 0,
            records_per_poll: 8,
            contents: 0,
        }
    }

    fn by_kind(kind: u64) -> Profile {
        let usual = Profile::usual();
        match kind {
            0 => Profile {
                fault_ms: (5, 300),
                leaders: 65,
                deposed: 0,
                leaders_per_return: 2,
                leaders_per_accident: 100,
                ..usual
            },
            1 => Profile {
                outputs_per_crash: 300,
                ..usual
            },
            2 => Profile {
                changes: 30,
                ..usual
            },
            3 => Profile {
                late_ms: 8_000,
                copy_ms: 3_000,
                ..usual
            },
            4 => Profile {
                fault_ms: (50, 400),
                leaders: 80,
                leaders_per_loss: 2,
                leaders_per_return: 2,
                leaders_per_accident: 100,
                behind_ms: 3_000,
                deposed: 50,
                ..usual
            },
            _ => Profile {
                loses_all: true,
                leaders_per_accident: 1,
                ..usual
            },
        }
    }
}
