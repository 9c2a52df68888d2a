//! Errors of requests, users, settings and replications.

use auth::AuthError;
use config::ConfigError;
use node::Error as NodeError;
use replicator::Error as ReplicatorError;

use crate::Status;

impl Status for NodeError {
    fn status(&self) -> u16 {
        use NodeError as E;
        match self {
            E::BadRequest(_) | E::InvalidJson | E::BackupTarget(_) => 400,
            E::AnonymousNoMember
            | E::AnonymousNoDesigner
            | E::NoMaintainer
            | E::NoServerAdmin
            | E::NoLogin => 401,
            E::NoMember | E::NoDesigner | E::ForbiddenRewrite | E::BackupForbidden(_) => 403,
            E::Missing | E::MissingKey(_) => 404,
            E::BackupRunning(_) => 409,
            E::DocumentTooLarge { .. } | E::IdTooLong(_) => 413,
            E::InsecureRewrite(_) | E::Security(_) | E::Backup(_) | E::WorkerFailed => 500,
            E::NoCluster | E::ByCommand => 501,
            E::Id(e) => e.status(),
            E::Config(e) => e.status(),
            E::Auth(e) => e.status(),
            E::Database(e) => e.status(),
            E::Functions(e) => e.status(),
        }
    }
}

impl Status for ReplicatorError {
    fn status(&self) -> u16 {
        use ReplicatorError as E;
        match self {
            E::BadRequest(_) | E::InvalidEndpoint(_) => 400,
            E::Unauthorized(_) | E::NotAdmin => 401,
            E::NoAccess(_) | E::Forbidden(_) => 403,
            E::NoJob => 404,
            E::Duplicate(..) => 409,
            E::MissingEndpoint
            | E::LocalEndpoint
            | E::NoDatabase(_)
            | E::FilterFetch(_)
            | E::CheckpointCommitFailure(_)
            | E::Request(_)
            | E::LongRow(_) => 500,
            E::LargeSelection(_) | E::TooLong(_) => 413,
            E::TooManyJobs(_) | E::NoRoom | E::Stopped => 503,
            E::Database(e) => e.status(),
        }
    }
}

impl Status for AuthError {
    fn status(&self) -> u16 {
        use AuthError as E;
        match self {
            E::BadBase64 | E::MalformedCookie | E::BadToken(_) => 400,
            E::Config(
                ConfigError::InvalidSection | ConfigError::InvalidKey | ConfigError::InvalidValue,
            ) => 400,
            E::BadCredentials | E::UserConflicts | E::TokenRefused(_) => 401,
            E::LockedOut | E::TooFewIterations | E::TooManyIterations => 403,
            E::JwtMisconfigured | E::Config(_) | E::UsersUnreadable(_) => 500,
            E::TooManyLogins => 503,
        }
    }
}

impl Status for ConfigError {
    fn status(&self) -> u16 {
        match self {
            ConfigError::Read { .. } | ConfigError::Write { .. } => 500,
            _ => 400,
        }
    }
}
