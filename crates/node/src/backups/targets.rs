//! Allowed targets of backups that are requested over HTTP. A server admin need not be an operator
//! of the machine, and may let the server write, with its rights and credentials, only where the
//! operator permits it: below `[backup] target` and `targets`, into a directory that holds backups
//! of this server, and where the client proves that it may write itself.

use std::path::{Component, Path, PathBuf};

use backup::TargetName;
use config::settings::Backup;

use super::Backups;
use crate::error::{Error, Result};

impl Backups {
    /// Checks that a backup to a target may be requested. `permit`: the name of a file that the client made in the directory
    /// ([`backup::Permit`]).
    ///
    /// # Errors
    /// [`Error::BackupForbidden`]
    pub(super) fn admit(&self, target: &TargetName, permit: Option<&str>) -> Result<()> {
        let settings = self.config.settings();
        let admitted = is_below_configured(target, &settings.backup)
            || match target {
                TargetName::Directory(path) => {
                    backup::is_of_server(path, &self.server())
                        // A permit does not cover targets of `..` once the directories are created.
                        || resolved(path).is_some()
                            && permit.is_some_and(|name| backup::has_permit(path, name))
                }
                TargetName::S3 { .. } => false,
            };
        match admitted {
            true => Ok(()),
            false => Err(Error::BackupForbidden(target.to_string())),
        }
    }
}

fn is_below_configured(target: &TargetName, settings: &Backup) -> bool {
    let one = Some(&settings.target).filter(|target| !target.is_empty());
    let all = one.into_iter().chain(&settings.targets);
    // The base of a relative path is not known.
    let is_absolute = |text: &&String| text.contains("://") || text.starts_with('/');
    let parsed = all
        .filter(is_absolute)
        .filter_map(|text| TargetName::parse(text).ok());
    parsed.into_iter().any(|root| is_below(target, &root))
}

/// Whether a target is a place or lies below it.
fn is_below(target: &TargetName, root: &TargetName) -> bool {
    match (target, root) {
        (TargetName::Directory(path), TargetName::Directory(root)) => {
            match (resolved(path), resolved(root)) {
                (Some(path), Some(root)) => path.starts_with(root),
                _ => false,
            }
        }
        (
            TargetName::S3 { bucket, prefix },
            TargetName::S3 {
                bucket: root_bucket,
                prefix: root_prefix,
            },
        ) => bucket == root_bucket && names(prefix).starts_with(&names(root_prefix)),
        _ => false,
    }
}

fn names(prefix: &str) -> Vec<&str> {
    prefix.split('/').filter(|name| !name.is_empty()).collect()
}

/// The path without symbolic links, as far as it exists.
fn resolved(path: &Path) -> Option<PathBuf> {
    let existing = backup::existing(path);
    let rest = path.strip_prefix(existing).ok()?;
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    let mut resolved = existing.canonicalize().ok()?;
    if !rest.components().all(is_name) {
        return None;
    }
    resolved.push(rest);
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn below(target: &str, roots: &[&str]) -> bool {
        let settings = Backup {
            targets: roots.iter().map(|&root| root.to_owned()).collect(),
            ..config::Settings::default().backup
        };
        is_below_configured(&TargetName::parse(target).unwrap(), &settings)
    }

    #[test]
    fn directories_are_compared_without_links_and_dots() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir_all(at("a/b")).unwrap();
        fs::create_dir_all(at("outside")).unwrap();
        symlink(at("outside"), at("a/link")).unwrap();
        symlink(at("a"), at("alias")).unwrap();
        let a = at("a");
        for inside in ["a", "a/b", "a/new", "a/new/x", "alias/b", "a/b/../new"] {
            assert!(below(&at(inside), &[&a]), "{inside}");
        }
        let of_alias = at("alias");
        assert!(below(&at("a/b"), &[&of_alias]));
        for outside in [
            "",
            "ab",
            "outside",
            "a/link",
            "a/link/x",
            "a/../outside",
            "a/new/../../outside",
        ] {
            assert!(!below(&at(outside), &[&a]), "{outside}");
        }
        assert!(!below(&a, &[]) && !below(&a, &["", "a"]));
        assert!(!below(&a, &["s3://a"]));
    }

    #[test]
    fn buckets_are_compared_by_whole_names() {
        let roots = ["s3://all", "s3://some/shop"];
        for inside in [
            "s3://all",
            "s3://all/x",
            "s3://some/shop",
            "s3://some//shop/x/",
        ] {
            assert!(below(inside, &roots), "{inside}");
        }
        for outside in [
            "s3://al",
            "s3://some",
            "s3://some/shopping",
            "s3://other/shop",
            "/all",
        ] {
            assert!(!below(outside, &roots), "{outside}");
        }
    }
}
