//! `settee serve`.

pub mod allocator;
mod cluster;
mod couchdb_image;
mod dev;
mod languages;
mod line_format;
mod lines;
mod listen;
mod log;
mod options;
mod repeats;
mod rotated;
mod traces;
mod welcome;

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use auth::Auth;
use config::{Config, Layers};
use database::Databases;
use functions::Languages;
use http_api::{App, Dev, Ending, Listeners};
use node::{DescriptorPlan, MemoryPlan, Node};
use telemetry::State;

use self::listen::{BoundPorts, bind, reload_on_hangup, reload_periodically, unusable};
use self::traces::Traces;
use self::welcome::{FileCheck, GENERATED_ADMIN, PASSWORD_FILE, Welcome, say};
use crate::Failure;
use crate::cli::{CREDENTIALS, PEER_CREDENTIALS, ServeOptions};
use crate::data::{CreatedDirectories, STORE};
use crate::{private, record_version};

/// Name of the admin that [`while_serving`] makes, and does not keep.
const MOMENTARY_ADMIN: &str = "settee-migrate";

pub fn run(options: ServeOptions) -> Result<(), Failure> {
    let config = load_config(&options)?;
    let data = data_directory(&options, &config);
    let place = cluster::log_place(&config, &data)?;
    let dev = dev::rules(&options, &config, place.is_some())?;
    // What can be refused without a data directory is, before there is one. A node learns its admins from the others.
    if place.is_none() && dev.is_none() {
        require_admin(&options, &config)?;
    }
    let ports = BoundPorts::bind(&config)?;
    let made = CreatedDirectories::new(&[&data_given(&options), &data])?;
    let mut logging = log::start(&config)?;
    warn_of_configuration(&options, &config);
    protect(&config);
    private::warn_of_others(&data, &config);
    private::tighten_store(&data.join(STORE));
    let descriptors = descriptor_plan(place.is_some());
    let auth = Auth::new(config.clone()).map_err(Failure::usage)?;
    let generated = ensure_admin(&options, &auth, &data)?;
    made.look_for_store(&data);
    let memory = memory_plan(&config);
    let databases = open(&options, &config, &memory, &descriptors, &data)?;
    let (runtime, replication) = (runtime()?, replication_runtime()?);
    cluster::prepare(place.as_ref(), &config, &data, &databases)?;
    let traces = Traces::start(&config, runtime.handle())?;
    let app = app_of(&databases, &config, auth, memory, dev)?;
    logging.tell_slow(&app);
    if let Some(place) = place {
        runtime.block_on(cluster::start(place, &app, &data))?;
    }
    let file = FileCheck::start(&config, &data, generated.is_some());
    begin_background(&app, &replication);
    let kept = keep_global_changes(&runtime, &config, &app);
    let ending = app.ending();
    let member = app.node.member().cloned();
    let result = runtime.block_on(async {
        let listeners = ports.listen(&config, descriptors.connections)?;
        begin(&config, &app, &listeners).await?;
        dev::announce(&options);
        made.keep();
        let welcome = Welcome::new(&config, &data, generated.as_deref(), file, options.dev);
        listen(app, listeners, &welcome).await
    });
    runtime.block_on(kept.end());
    if let Some(member) = member {
        runtime.block_on(member.stop());
    }
    traces.end();
    replication.shutdown_timeout(Duration::from_secs(2));
    runtime.shutdown_timeout(Duration::from_secs(2));
    databases.close();
    tracing::info!("stopped");
    let ports = result?;
    if let Some(done) = ended(&ending.borrow()) {
        return done;
    }
    drop((databases, logging));
    Err(restart_process(&config, ports))
}

/// Returns the result of a server that does not start again.
fn ended(ending: &Ending) -> Option<Result<(), Failure>> {
    match ending {
        Ending::Stop => Some(Ok(())),
        Ending::Failure(why) => Some(Err(Failure::new(why))),
        Ending::Restart => None,
    }
}

fn app_of(
    databases: &Arc<Databases>,
    config: &Config,
    auth: Auth,
    memory: MemoryPlan,
    dev: Option<Dev>,
) -> Result<Arc<App>, Failure> {
    let node = Node::new(databases.clone(), config.clone(), auth, memory);
    let node = node.map_err(Failure::usage)?;
    http_api::measure_by(allocator::bytes_of_thread);
    let app = match dev {
        None => App::new(node, allocator::allocated_bytes),
        Some(dev) => App::new_dev(node, allocator::allocated_bytes, dev),
    };
    app.map_err(Failure::usage)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    // Reads that miss the caches block their thread for a while: twice the cores keep the others served.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((threads * 2).max(4))
        .thread_name("serve")
        .on_thread_start(database::commit_on_this_thread)
        .on_thread_park(telemetry::park)
        .on_thread_unpark(|| telemetry::unpark(State::Network))
        .enable_all()
        .build()
        .map_err(Failure::new)
}

/// Replications get the remaining processor time, at least a twentieth: no client waits for them,
/// and their requests wait for others.
const REPLICATION_NICE: i32 = 15;

/// The runtime of replications.
fn replication_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get()))
        .thread_name("replicate")
        .on_thread_start(|| telemetry::give_way(REPLICATION_NICE))
        .on_thread_park(telemetry::park)
        .on_thread_unpark(|| telemetry::unpark(State::Replication))
        .enable_all()
        .build()
        .map_err(Failure::new)
}

/// Starts the background work of the server: replications, and backups and purges, for which no
/// client waits either.
fn begin_background(app: &App, replication: &tokio::runtime::Runtime) {
    let node = &app.node;
    node.replicator.run_jobs_on(replication.handle().clone());
    node.backups.run_on(replication.handle());
    node.auto_purge.run_on(replication.handle());
    node.expirer.run_on(replication.handle());
}

/// Serves a data directory to this process alone, at a free port and for an admin of the moment, while `work` runs; it
/// gets the URL with the admin's name and password.
pub fn while_serving<F: Future<Output = Result<(), Failure>>>(
    data: &Path,
    work: impl FnOnce(String) -> F,
) -> Result<(), Failure> {
    let set = ["log/level=warning", "ssl/enable=false"].map(str::to_owned);
    let options = ServeOptions {
        data: Some(data.to_owned()),
        bind: Some("127.0.0.1".into()),
        port: Some(0),
        set: set.into(),
        no_admin: true,
        ..ServeOptions::default()
    };
    let config = load_config(&options)?;
    let address = config.settings().chttpd.bind_address;
    let data = data_directory(&options, &config);
    let made = CreatedDirectories::new(&[&data])?;
    let _logging = log::start(&config)?;
    protect(&config);
    private::tighten_store(&data.join(STORE));
    let auth = Auth::new(config.clone()).map_err(Failure::usage)?;
    let password = auth::random_password();
    auth.set_admin(MOMENTARY_ADMIN, &password, false)
        .map_err(Failure::new)?;
    made.look_for_store(&data);
    let (memory, descriptors) = (memory_plan(&config), descriptor_plan(false));
    let databases = open(&options, &config, &memory, &descriptors, &data)?;
    let app = app_of(&databases, &config, auth, memory, None)?;
    let runtime = runtime()?;
    let kept = keep_global_changes(&runtime, &config, &app);
    let result = runtime.block_on(async {
        let address = SocketAddr::new(address, 0);
        let listener = bind(address)?.listen(64).map_err(unusable(address))?;
        let local = listener.local_addr().map_err(Failure::new)?;
        create_system_databases(&app.node).await?;
        made.keep();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(http_api::serve(listener, app, async {
            // Resolves when the work is done, whichever way.
            let _ = stopped.await;
        }));
        let url = format!("http://{MOMENTARY_ADMIN}:{password}@{local}");
        let interrupted = stop_signal().map_err(Failure::new)?;
        let result = tokio::select! {
            result = work(url) => result,
            () = interrupted => Err(Failure::new("interrupted; resume with --continue")),
        };
        drop(stop);
        server.await.map_err(Failure::new)?;
        result
    });
    runtime.block_on(kept.end());
    runtime.shutdown_timeout(Duration::from_secs(2));
    databases.close();
    result
}

/// The ports that are listened at: HTTP, and HTTPS if there is one.
struct Ports {
    http: u16,
    https: Option<u16>,
    metrics: Option<u16>,
}

/// Becomes a new process of the same program with the same arguments; returns the error if that
/// failed. A port that was chosen by the system stays the same.
fn restart_process(config: &Config, ports: Ports) -> Failure {
    use std::os::unix::process::CommandExt as _;
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => return Failure::new(format!("restart: {e}")),
    };
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1));
    let settings = config.settings();
    for (section, configured, port) in [
        ("chttpd", settings.chttpd.port, Some(ports.http)),
        ("ssl", settings.ssl.port, ports.https),
        ("prometheus", settings.prometheus.port, ports.metrics),
    ] {
        if let Some(port) = port
            && configured == 0
        {
            command.arg("--set").arg(format!("{section}/port={port}"));
        }
    }
    Failure::new(format!("restart: {}", command.exec()))
}

/// The directory as given, before any configuration is read from it.
fn data_given(options: &ServeOptions) -> PathBuf {
    options.data.clone().unwrap_or_else(|| "data".into())
}

/// Starts the runtimes of a data directory's functions, as a server there would.
pub fn functions_of(data: &Path) -> Result<Arc<dyn Languages>, Failure> {
    let config = load_config(&ServeOptions {
        data: Some(data.to_owned()),
        ..ServeOptions::default()
    })?;
    languages::start(&config)
}

/// Warns of configuration without an effect, and of secrets that others can read.
fn warn_of_configuration(options: &ServeOptions, config: &Config) {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    if !options.admin.is_empty() {
        tracing::warn!(
            "everyone on this machine can read the password of --admin in the list of processes: use --admin-file FILE or SETTEE_ADMINS_NAME=PASSWORD"
        );
    }
}

/// Protects this process from others: from child processes by closing descriptors, from those of
/// its user by making its memory unreadable.
fn protect(config: &Config) {
    // Before Linux 5.11 this call does not exist. Workers also close inherited descriptors
    // themselves.
    if let Err(error) = confine::keep_descriptors() {
        tracing::debug!(%error, "descriptors that the server was started with are inherited");
    }
    if let Err(error) = confine::hide_memory() {
        tracing::warn!(%error, "processes of the server's user can read its memory");
    }
    let has_workers = config.settings().functions.isolation == config::settings::Isolation::Process;
    if has_workers && let Some(missing) = confine::of_this_kernel().missing() {
        tracing::warn!(
            "JavaScript functions run without {missing}, which the kernel or the container does not provide: a function that exploits a defect of the engine would have the rights of the server's user"
        );
    }
}

/// Returns whether an environment variable is a setting.
fn is_setting(variable: &str) -> bool {
    let of_tests = ["SETTEE_CACHE", "SETTEE_VECTORS", record_version::VARIABLE];
    let is_secret = [CREDENTIALS, PEER_CREDENTIALS].contains(&variable)
        || variable.starts_with("SETTEE_MIGRATE_");
    variable.starts_with("SETTEE_") && !of_tests.contains(&variable) && !is_secret
}

fn load_config(options: &ServeOptions) -> Result<Config, Failure> {
    let data = data_given(options);
    if data.is_file() {
        let data = data.display();
        return Err(Failure::usage(format!(
            "{data}: this is a file, not a directory"
        )));
    }
    let mut layers = Layers::new(data.join("local.ini"));
    layers.local_d = Some(data.join("local.d"));
    layers.files = options.config.clone();
    layers.env = std::env::vars().filter(|(k, _)| is_setting(k)).collect();
    if options.couchdb_variables {
        let variable = |name: &str| std::env::var(name).ok();
        layers.env.extend(couchdb_image::settings_of(variable)?);
    }
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
        let (name, password) = name_and_password(admin)
            .ok_or_else(|| Failure::usage("--admin wants NAME:PASSWORD"))?;
        set("admins", name, password);
    }
    for file in &options.admin_file {
        let text = read_admins(file)
            .map_err(|e| Failure::usage(format!("--admin-file {}: {e}", file.display())))?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (name, password) = name_and_password(line)
                .ok_or_else(|| Failure::usage("--admin-file must have lines NAME:PASSWORD"))?;
            set("admins", name, password);
        }
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
    // It overrides all other settings, and the configuration shows it. A path that is not UTF-8
    // cannot be shown.
    if let Some(data) = options.data.as_deref().and_then(Path::to_str) {
        set("couchdb", "database_dir", data);
    }
    Config::load(layers).map_err(Failure::usage)
}

fn name_and_password(text: &str) -> Option<(&str, &str)> {
    text.split_once(':')
        .filter(|(name, password)| !name.is_empty() && !password.is_empty())
}

/// The text of a file of admins. After a restart over HTTP the standard input is at its end, and the admins are in `local.ini`.
fn read_admins(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin());
    }
    std::fs::read_to_string(file)
}

fn data_directory(options: &ServeOptions, config: &Config) -> PathBuf {
    match &options.data {
        Some(data) => data.clone(),
        None => config.settings().couchdb.database_dir.clone().into(),
    }
}

/// Raises the limit of open files as far as possible, and plans the use of descriptors.
fn descriptor_plan(is_member: bool) -> DescriptorPlan {
    raise_file_limit();
    let plan = DescriptorPlan::new(is_member);
    if plan.is_too_much() {
        tracing::warn!(
            limit = plan.limit,
            "the limit of open files leaves hardly any for connections: raise it (LimitNOFILE, ulimit -n)"
        );
    }
    plan
}

/// A thousand connections need more than the usual 1,024 files.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(error = %e, "the limit of open files could not be raised");
    }
}

/// Refuses to start a server without an admin.
fn require_admin(options: &ServeOptions, config: &Config) -> Result<(), Failure> {
    let has_admins = !config.settings().admins.all.is_empty();
    if has_admins || options.no_admin || options.generate_admin {
        return Ok(());
    }
    if options.couchdb_variables {
        return Err(Failure::usage(couchdb_image::NO_ADMIN));
    }
    Err(Failure::usage(
        "there is no admin, and without one databases cannot be created. Do one of these:\n  \
             settee serve --admin-file FILE         an admin of your choice, in a file with a line NAME:PASSWORD\n  \
             settee serve --admin NAME:PASSWORD     the same, for a machine without other users\n  \
             settee serve --generate-admin          one with a random password, which is printed\n  \
             settee serve --no-admin                start all the same\n\
             or write a line `NAME = PASSWORD` under [admins] in local.ini.",
    ))
}

/// Creates an admin if requested; returns the password.
fn ensure_admin(
    options: &ServeOptions,
    auth: &Auth,
    data: &Path,
) -> Result<Option<String>, Failure> {
    if auth.has_admins() || !options.generate_admin || options.no_admin {
        return Ok(None);
    }
    let password = auth::random_password();
    auth.set_admin(GENERATED_ADMIN, &password, true)
        .map_err(Failure::new)?;
    let path = data.join(PASSWORD_FILE);
    let written = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut f| {
            // An existing file would keep its mode otherwise.
            f.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            writeln!(f, "{password}")
        });
    written.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    Ok(Some(password))
}

fn memory_plan(config: &Config) -> MemoryPlan {
    let plan = MemoryPlan::new(&config.settings());
    allocator::keep_within(plan.limit);
    if plan.planned() > plan.limit / 4 * 3 {
        let (planned, limit) = (plan.planned(), plan.limit);
        tracing::warn!(
            planned,
            limit,
            "the budgets of memory leave little of the limit"
        );
    }
    plan
}

fn open(
    options: &ServeOptions,
    config: &Config,
    memory: &MemoryPlan,
    descriptors: &DescriptorPlan,
    data: &Path,
) -> Result<Arc<Databases>, Failure> {
    let (languages, settings) = (languages::start(config)?, config.settings());
    let damaged = options.accept_damaged_log;
    let options = options::databases(&settings, memory, descriptors, languages, damaged);
    Databases::open(&data.join(STORE), options).map_err(Failure::new)
}

/// The task that keeps `_global_changes`.
struct GlobalChanges {
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl GlobalChanges {
    /// Writes the remaining lines.
    async fn end(self) {
        // Either fails only when the task is gone already.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

fn keep_global_changes(
    runtime: &tokio::runtime::Runtime,
    config: &Config,
    app: &App,
) -> GlobalChanges {
    let settings = config.settings();
    let config = config.clone();
    let options = move || options::global_changes(&config.settings().global_changes);
    let wanted = settings.global_changes.update_db;
    let databases = app.node.databases.clone();
    // In a cluster every node would write what all see.
    let writer = app.node.member().map(|member| {
        let (jobs, gateway) = (member.jobs().clone(), member.gateway().clone());
        database::EventWriter {
            writes: Box::new(move || jobs.runs(database::GLOBAL_CHANGES)),
            writes_of: Box::new(move |name| gateway.acts_for(name)),
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let task = runtime.spawn(async move {
        if wanted {
            let stopped = async {
                // Resolves when the server stops, whichever way.
                let _ = stopped.await;
            };
            databases
                .keep_global_changes(options, writer, stopped)
                .await;
        }
    });
    GlobalChanges { stop, task }
}

async fn create_system_databases(node: &Node) -> Result<(), Failure> {
    let done = node::setup::create_system_databases(node).await;
    done.map_err(|e| Failure::new(format!("system databases: {e}")))
}

/// The last steps before requests are served.
async fn begin(config: &Config, app: &App, listeners: &Listeners) -> Result<(), Failure> {
    match app.node.member() {
        Some(member) => cluster::announce(app.node.clone(), member.clone()),
        None => create_system_databases(&app.node).await?,
    }
    let tls = listeners.https.as_ref().map(|(_, tls)| tls.clone());
    reload_periodically(config);
    reload_on_hangup(config, tls).map_err(Failure::new)
}

async fn listen(app: Arc<App>, listeners: Listeners, welcome: &Welcome) -> Result<Ports, Failure> {
    let stop = stop_signal().map_err(Failure::new)?;
    let local = listeners.http.local_addr().map_err(Failure::new)?;
    let mut ports = Ports {
        http: local.port(),
        https: None,
        metrics: None,
    };
    welcome.print(local);
    if let Some(metrics) = &listeners.metrics {
        let local = metrics.local_addr().map_err(Failure::new)?;
        ports.metrics = Some(local.port());
        say(&format!(
            "Prometheus finds numbers on http://{local}/_node/_local/_prometheus"
        ));
    }
    if let Some((https, _)) = &listeners.https {
        let local = https.local_addr().map_err(Failure::new)?;
        ports.https = Some(local.port());
        say(&format!("Settee is listening on https://{local}"));
    }
    say(&format!("Settee is listening on http://{local}"));
    tell_systemd(sd_notify::NotifyState::Ready);
    let mut ending = app.ending();
    let stop = async {
        tokio::select! {
            () = stop => {}
            // The sender lives as long as the app, which is served.
            _ = ending.wait_for(|ending| *ending != Ending::Stop) => tracing::info!("ending"),
        }
    };
    let stop = async {
        stop.await;
        tell_systemd(sd_notify::NotifyState::Stopping);
    };
    http_api::serve(listeners, app, stop).await;
    Ok(ports)
}

/// Units of type `notify` are started when the server answers, not when there is a process. Nothing happens elsewhere.
fn tell_systemd(state: sd_notify::NotifyState<'_>) {
    if let Err(e) = sd_notify::notify(&[state]) {
        tracing::warn!(error = %e, "systemd was not notified");
    }
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
