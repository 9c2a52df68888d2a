//! Options of databases and their functions from the settings.

use std::sync::Arc;
use std::time::Duration;

use config::{Settings, settings};
use database::{AttachmentOptions, GlobalChangesOptions, Options, StoreOptions};
use functions::Languages;
use node::{DescriptorPlan, MemoryPlan};

/// Options for opening the databases. `node` sets the limits of attachments, also after changes of
/// the configuration.
pub fn databases(
    settings: &Settings,
    memory: &MemoryPlan,
    descriptors: &DescriptorPlan,
    languages: Arc<dyn Languages>,
    accept_damaged_log: bool,
) -> Options {
    Options {
        store: StoreOptions {
            accept_damaged_log,
            open_files_max: descriptors.store_files,
            ..store(&settings.rocksdb, memory)
        },
        default_q: settings.cluster.q,
        default_n: 1,
        auto_compact: settings.compaction.enable,
        languages,
        reduce_limit: node::reduce_limit(&settings.query_server_config),
        ken: node::ken(settings),
        attachments: AttachmentOptions::default(),
        open_bytes: memory.open_databases,
        build_bytes: memory.index_builds,
        aggregate_bytes: memory.aggregates,
        search_bytes: memory.searches,
        index_rows_bytes: memory.index_rows,
    }
}

fn store(settings: &settings::Rocksdb, memory: &MemoryPlan) -> StoreOptions {
    StoreOptions {
        block_cache_bytes: memory.block_cache,
        documents_bytes: memory.documents,
        write_buffers_bytes: memory.write_buffers / 2,
        background_jobs: settings.max_background_jobs.clamp(1, 64) as i32,
        background_bytes_per_s: settings.background_bytes_per_second,
        ..StoreOptions::default()
    }
}

/// How `_global_changes` is kept.
pub fn global_changes(settings: &settings::GlobalChanges) -> GlobalChangesOptions {
    GlobalChangesOptions {
        event_delay: settings.max_event_delay,
        write_delay: settings.max_write_delay,
    }
}

/// How JavaScript runs. `time_zone` is the effective one.
pub fn javascript(
    settings: &settings::Functions,
    memory: &MemoryPlan,
    time_zone: String,
) -> functions::js::Options {
    let default = functions::js::Options::default();
    functions::js::Options {
        time_zone,
        time: settings.time_limit_ms,
        memory_bytes: settings.memory_limit_bytes,
        stack_bytes: settings.stack_limit_bytes,
        emit_rows_max: settings.emit_rows_limit,
        emit_bytes_max: settings.emit_bytes_limit,
        isolation: match settings.isolation {
            settings::Isolation::Thread => functions::js::Isolation::Thread,
            settings::Isolation::Process => functions::js::Isolation::Process,
        },
        workers_max: match settings.workers_limit {
            0 => default.workers_max,
            n => n,
        },
        queue_max: settings.queue_limit,
        workers_bytes_max: memory.workers,
        ..default
    }
}

/// The configured query servers, and their options.
///
/// As in CouchDB, Erlang must be enabled by `[native_query_servers] enable_erlang_query_server =
/// true` or by the older `erlang = {couch_native_process, start_link, []}`, unless
/// `[query_servers]` has a command of its own for it.
pub fn query_servers(
    settings: &Settings,
    descriptors: &DescriptorPlan,
    commands_of_environment: &[(String, String)],
) -> functions::query_server::Settings {
    let programs = &settings.query_server_config;
    let mut servers = functions::query_server::Settings {
        process_limit: programs.os_process_limit.max(1),
        process_soft_limit: programs.os_process_soft_limit.max(1),
        idle_limit: programs.os_process_idle_limit,
        timeout: settings
            .couchdb
            .os_process_timeout
            .max(Duration::from_millis(1)),
        reduce_limit: match programs.reduce_limit {
            settings::ReduceLimit::On => functions::query_server::ReduceLimit::On,
            settings::ReduceLimit::Off => functions::query_server::ReduceLimit::Off,
            settings::ReduceLimit::Log => functions::query_server::ReduceLimit::Log,
        },
        reduce_limit_threshold: programs.reduce_limit_threshold as u64,
        reduce_limit_ratio: programs.reduce_limit_ratio,
        ..functions::query_server::Settings::default()
    };
    let native = &settings.native_query_servers;
    let older = native.all.get("erlang").map(String::as_str);
    if native.enable_erlang_query_server || older == Some("{couch_native_process, start_link, []}")
    {
        servers.set_command("erlang", "builtin");
    }
    // The configuration has the last word.
    let of_environment = commands_of_environment.iter().map(|(l, c)| (l, c));
    for (language, command) in of_environment.chain(&settings.query_servers.all) {
        servers.set_command(language, command);
    }
    let most = descriptors.query_servers(servers.commands.len());
    servers.process_limit = servers.process_limit.min(most);
    servers.process_soft_limit = servers.process_soft_limit.min(most);
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Config, Layers};
    use node::LimitSource;

    /// Enough descriptors for everything.
    const PLENTY: DescriptorPlan = DescriptorPlan {
        limit: 1 << 20,
        store_files: 1024,
        outgoing: 16_384,
        forwarded_clients: 0,
        work: 8192,
        connections: 1 << 19,
    };

    /// The default settings equal the defaults of the embedded API.
    #[test]
    fn defaults_are_those_of_the_crates_that_they_are_for() {
        let settings = Settings::default();
        // Where there is enough for everything.
        let memory = MemoryPlan::within(1 << 40, LimitSource::Machine, &settings);
        let descriptors = DescriptorPlan {
            store_files: database::OPEN_FILES_MAX,
            ..PLENTY
        };
        let languages = Arc::new(functions::NoLanguages);
        let (here, there) = (
            databases(&settings, &memory, &descriptors, languages, false),
            Options::default(),
        );
        assert_eq!(format!("{:?}", here.store), format!("{:?}", there.store));
        assert_eq!(here.default_q, there.default_q);
        assert_eq!(u64::from(here.default_n), settings.cluster.n);
        assert_eq!(here.default_n, there.default_n);
        assert_eq!(here.auto_compact, there.auto_compact);
        assert_eq!(here.reduce_limit, there.reduce_limit);
        assert_eq!(format!("{:?}", here.ken), format!("{:?}", there.ken));
        assert_eq!(here.attachments, there.attachments);
        assert_eq!(
            (here.open_bytes, here.build_bytes, here.index_rows_bytes),
            (there.open_bytes, there.build_bytes, there.index_rows_bytes)
        );
        assert_eq!(
            (here.aggregate_bytes, here.search_bytes),
            (there.aggregate_bytes, there.search_bytes)
        );
        let (here, there) = (
            javascript(&settings.functions, &memory, functions::UTC.to_owned()),
            // Worker processes are a program's, which a library is not; a library has the time zone
            // of its process.
            functions::js::Options {
                isolation: functions::js::Isolation::Process,
                time_zone: functions::UTC.to_owned(),
                ..functions::js::Options::default()
            },
        );
        assert_eq!(format!("{here:?}"), format!("{there:?}"));
        assert_eq!(
            query_servers(&settings, &PLENTY, &[]),
            functions::query_server::Settings::default()
        );
    }

    /// The settings that these lines of `local.ini` make.
    fn settings(ini: &str) -> Arc<Settings> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("local.ini");
        std::fs::write(&path, ini).unwrap();
        Config::load(Layers::new(path)).unwrap().settings()
    }

    #[test]
    fn query_servers_are_read_as_couchdb_has_them() {
        let settings = settings(
            "[query_server_config]\nos_process_limit = 7\nos_process_idle_limit = 60\nreduce_limit = log\n\
             reduce_limit_ratio = 1.5\n[couchdb]\nos_process_timeout = 1000\n[query_servers]\nPython = couchpy --debug\n",
        );
        let of_environment = [("python", "couchpy -x"), ("ruby", "couchrb")];
        let of_environment = of_environment.map(|(name, line)| (name.to_owned(), line.to_owned()));
        let mut expected = functions::query_server::Settings {
            process_limit: 7,
            idle_limit: Duration::from_secs(60),
            reduce_limit: functions::query_server::ReduceLimit::Log,
            reduce_limit_ratio: 1.5,
            timeout: Duration::from_secs(1),
            ..functions::query_server::Settings::default()
        };
        for (language, command) in [("python", "couchpy --debug"), ("ruby", "couchrb")] {
            expected.commands.insert(language.into(), command.into());
        }
        assert_eq!(query_servers(&settings, &PLENTY, &of_environment), expected);
        let few = DescriptorPlan { work: 36, ..PLENTY };
        let servers = query_servers(&settings, &few, &of_environment);
        assert_eq!((servers.process_limit, servers.process_soft_limit), (3, 3));
    }

    #[test]
    fn erlang_is_allowed_in_two_ways() {
        let erlang = |line: &str| {
            let settings = settings(&format!("[native_query_servers]\n{line}\n"));
            let commands = query_servers(&settings, &PLENTY, &[]).commands;
            commands.get("erlang").cloned()
        };
        let builtin = functions::query_server::builtin_command("erlang");
        assert_eq!(erlang("enable_erlang_query_server = true"), builtin);
        assert_eq!(
            erlang("erlang = {couch_native_process, start_link, []}"),
            builtin
        );
        assert_eq!(erlang("enable_erlang_query_server = false"), None);
    }

    #[test]
    fn as_many_shards_may_be_configured_as_a_database_may_have() {
        for section in ["cluster", "couch_peruser"] {
            let q = settings::find(section, "q").unwrap();
            assert!(q.accepts(&database::SHARDS_MAX.to_string()));
            assert!(!q.accepts(&(database::SHARDS_MAX + 1).to_string()));
        }
    }

    #[test]
    fn a_reduce_limit_that_is_off_is_none() {
        for value in ["false", "log"] {
            let settings = settings(&format!("[query_server_config]\nreduce_limit = {value}\n"));
            assert_eq!(node::reduce_limit(&settings.query_server_config), None);
        }
    }
}
