//! What kind of bad days a seed gets.

/// How often things happen.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Between two faults.
    pub fault_ms: (u64, u64),
    /// Of 100 faults, those that are another leader before any other kind is thrown for, and changes of replicas after that.
    pub leaders: u32,
    pub changes: u32,
    /// One leader of so many lacks the last records; and had the log as it was before, without what came since.
    pub leaders_per_loss: u32,
    pub leaders_per_return: u32,
    /// One of so many may lack what is stable, too.
    pub leaders_per_accident: u32,
    /// How long at most a leader before is seen yet; of 100 records that are appended meanwhile by who sees it, it takes so many.
    pub behind_ms: u64,
    pub deposed: u32,
    /// A crash between two outputs, one in so many.
    pub outputs_per_crash: u32,
    /// How late the latest messages come, and how long a copy takes.
    pub late_ms: u64,
    pub copy_ms: u64,
    /// Everything may be lost, and operators err.
    pub loses_all: bool,
    /// The log is long from the start on.
    pub records_at_start: u64,
    pub records_per_poll: u64,
}

impl Profile {
    pub fn of(seed: u64) -> Profile {
        let profile = Profile::by_kind(seed % 6);
        match seed % 250 {
            // More than are remembered in any case.
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
            records_at_start: 0,
            records_per_poll: 8,
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
