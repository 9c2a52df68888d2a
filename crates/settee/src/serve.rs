//! `settee serve`.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use auth::Auth;
use config::{Config, Layers};
use database::{AttachmentOptions, Databases, KenOptions, Options, StoreOptions};
use http_api::App;
use tokio::net::{TcpListener, TcpSocket};
use tracing_appender::non_blocking::WorkerGuard;

use crate::Failure;
use crate::cli::ServeOptions;
use crate::languages;

/// Where the store is inside the data directory.
pub const STORE: &str = "store";
/// Name of the admin that `--generate-admin` makes.
const GENERATED_ADMIN: &str = "admin";

pub fn run(options: ServeOptions) -> Result<(), Failure> {
    let config = load_config(&options)?;
    let data = data_directory(&options, &config)?;
    let _flush = start_log(&config)?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    raise_file_limit();
    let auth = Auth::new(config.clone()).map_err(Failure::usage)?;
    let generated = ensure_admin(&options, &auth, &data)?;
    let databases = open(&options, &config, &data)?;
    let app = App::new(databases.clone(), config.clone(), auth).map_err(Failure::usage)?;
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    // Reads that miss the caches block their thread for a while: twice the cores keep the others served.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads((threads * 2).max(4))
        .thread_name("serve")
        .enable_all()
        .build()
        .map_err(Failure::new)?;
    let result = runtime.block_on(listen(&options, &config, app, generated.as_deref()));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    databases.close();
    tracing::info!("stopped");
    result
}

/// The directory as given, before any configuration is read from it.
fn data_given(options: &ServeOptions) -> PathBuf {
    options.data.clone().unwrap_or_else(|| "data".into())
}

fn load_config(options: &ServeOptions) -> Result<Config, Failure> {
    let data = data_given(options);
    let mut layers = Layers::new(data.join("local.ini"));
    layers.local_d = Some(data.join("local.d"));
    layers.files = options.config.clone();
    layers.env = std::env::vars()
        .filter(|(k, _)| k.starts_with("SETTEE_"))
        // Of the build and the tests, not settings.
        .filter(|(k, _)| k != "SETTEE_CACHE" && k != "SETTEE_VECTORS")
        .collect();
    let mut set = |section: &str, key: &str, value: &str| {
        layers
            .overrides
            .push((section.into(), key.into(), value.into()));
    };
    if let Some(bind) = &options.bind {
        set("chttpd", "bind_address", bind);
    }
    if let Some(port) = options.port {
        set("chttpd", "port", &port.to_string());
    }
    for admin in &options.admin {
        let (name, password) = admin
            .split_once(':')
            .filter(|(n, p)| !n.is_empty() && !p.is_empty())
            .ok_or_else(|| Failure::usage("--admin wants NAME:PASSWORD"))?;
        set("admins", name, password);
    }
    for setting in &options.set {
        let (place, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::usage("--set wants SECTION/KEY=VALUE"))?;
        let (section, key) = place
            .split_once('/')
            .ok_or_else(|| Failure::usage("--set wants SECTION/KEY=VALUE"))?;
        set(section, key, value);
    }
    Config::load(layers).map_err(Failure::usage)
}

fn data_directory(options: &ServeOptions, config: &Config) -> Result<PathBuf, Failure> {
    let data = match &options.data {
        Some(data) => data.clone(),
        None => config
            .get_str("couchdb", "database_dir")
            .map_err(Failure::usage)?
            .into(),
    };
    std::fs::create_dir_all(&data).map_err(|e| Failure::new(format!("{}: {e}", data.display())))?;
    Ok(data)
}

/// Logs go through a thread of their own, so that a slow terminal slows no request.
fn start_log(config: &Config) -> Result<WorkerGuard, Failure> {
    let level = config.get_str("log", "level").map_err(Failure::usage)?;
    let filter = match level.as_str() {
        "debug" => "debug,hyper=info,h2=info",
        "warning" | "warn" => "warn",
        "error" | "critical" | "alert" | "emergency" => "error",
        "none" => "off",
        _ => "info",
    };
    let writer = config.get_str("log", "writer").map_err(Failure::usage)?;
    let (writer, guard) = if writer == "file" {
        let path = config.get_str("log", "file").map_err(Failure::usage)?;
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| Failure::new(format!("[log] file {path}: {e}")))?;
        tracing_appender::non_blocking(file)
    } else {
        tracing_appender::non_blocking(std::io::stderr())
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(writer)
        .with_ansi(false)
        .init();
    Ok(guard)
}

/// A thousand connections need more than the usual 1,024 files.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(error = %e, "the limit of open files stays as it is");
    }
}

/// Makes sure that somebody can administer the server; answers a password made just now.
fn ensure_admin(
    options: &ServeOptions,
    auth: &Auth,
    data: &Path,
) -> Result<Option<String>, Failure> {
    if auth.has_admins() || options.no_admin {
        return Ok(None);
    }
    if !options.generate_admin {
        return Err(Failure::usage(
            "there is no admin, and without one nobody could create a database. Do one of these:\n  \
             settee serve --admin NAME:PASSWORD     an admin of your choice, kept hashed in local.ini\n  \
             settee serve --generate-admin          one with a random password, which is printed\n  \
             settee serve --no-admin                start all the same\n\
             or write a line `NAME = PASSWORD` under [admins] in local.ini.",
        ));
    }
    let password = auth::random_password();
    auth.set_admin(GENERATED_ADMIN, &password, true)
        .map_err(Failure::new)?;
    let path = data.join("admin-password");
    let written = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut f| writeln!(f, "{password}"));
    written.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    Ok(Some(password))
}

fn open(options: &ServeOptions, config: &Config, data: &Path) -> Result<Arc<Databases>, Failure> {
    let number = |section, key| config.get_u64(section, key).map_err(Failure::usage);
    let options = Options {
        store: StoreOptions {
            block_cache_bytes: number("rocksdb", "block_cache_size")? as usize,
            write_buffers_bytes: number("rocksdb", "write_buffer_size")? as usize,
            background_jobs: number("rocksdb", "max_background_jobs")?.clamp(1, 64) as i32,
            accept_damaged_log: options.accept_damaged_log,
            ..StoreOptions::default()
        },
        default_q: number("cluster", "q")? as u32,
        default_n: 1,
        auto_compact: config
            .get_bool("compaction", "enable")
            .map_err(Failure::usage)?,
        languages: languages::functions(config)?,
        reduce_limit: languages::reduce_limit(config)?,
        ken: KenOptions {
            enabled: config.get_bool("ken", "enable").map_err(Failure::usage)?,
            limit: number("ken", "limit")? as usize,
        },
        // The HTTP API sets them, also when the configuration changes.
        attachments: AttachmentOptions::default(),
    };
    Databases::open(&data.join(STORE), options).map_err(Failure::new)
}

async fn listen(
    options: &ServeOptions,
    config: &Config,
    app: Arc<App>,
    generated: Option<&str>,
) -> Result<(), Failure> {
    let address: IpAddr = {
        let text = config
            .get_str("chttpd", "bind_address")
            .map_err(Failure::usage)?;
        match text.as_str() {
            "any" => [0, 0, 0, 0].into(),
            "localhost" => [127, 0, 0, 1].into(),
            text => text.parse().map_err(|_| {
                Failure::usage(format!("[chttpd] bind_address: '{text}' is no IP address"))
            })?,
        }
    };
    let port = config.get_u64("chttpd", "port").map_err(Failure::usage)?;
    let port = u16::try_from(port).map_err(|_| Failure::usage("[chttpd] port is above 65535"))?;
    let backlog = backlog(config)?;
    let listener = bind(SocketAddr::new(address, port), backlog.min(65_535) as u32)?;
    let local = listener.local_addr().map_err(Failure::new)?;
    let stop = stop_signal().map_err(Failure::new)?;
    if let Some(password) = generated {
        println!("Admin: {GENERATED_ADMIN}, password: {password}");
        println!(
            "(also in {}/admin-password)",
            data_directory(options, config)?.display()
        );
    }
    println!("Settee is listening on http://{local}");
    std::io::stdout().flush().map_err(Failure::new)?;
    http_api::serve(listener, app, stop).await;
    Ok(())
}

/// `[chttpd] backlog`, or the one of `server_options`, CouchDB's list of Erlang tuples. Its other options are those of
/// a server that is not here: they are said to be without effect.
fn backlog(config: &Config) -> Result<u64, Failure> {
    let mut backlog = config
        .get_u64("chttpd", "backlog")
        .map_err(Failure::usage)?;
    let options = config.get("chttpd", "server_options").unwrap_or_default();
    for option in options.split('{').skip(1) {
        let option = option.split('}').next().unwrap_or_default();
        let (name, value) = option.split_once(',').unwrap_or((option, ""));
        match (name.trim(), value.trim().parse::<u64>()) {
            ("backlog", Ok(n)) => backlog = n,
            (name, _) => tracing::warn!(
                "[chttpd] server_options: {name} has no effect here: connections are accepted as they come"
            ),
        }
    }
    Ok(backlog)
}

fn bind(address: SocketAddr, backlog: u32) -> Result<TcpListener, Failure> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    socket
        .and_then(|s| {
            s.set_reuseaddr(true)?;
            s.bind(address)?;
            s.listen(backlog)
        })
        .map_err(|e| Failure::new(format!("cannot listen on {address}: {e}")))
}

fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    })
}
