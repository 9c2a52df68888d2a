//! The ports: taken, opened, and secured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use config::settings::Chttpd;
use http_api::{Listeners, Tls};
use tokio::net::TcpSocket;
use tokio::sync::Notify;

use crate::Failure;

/// The ports, taken but closed until everything is ready: a port that another program has is found out first of all.
pub struct BoundPorts {
    http: (SocketAddr, TcpSocket),
    https: Option<(SocketAddr, TcpSocket)>,
    metrics: Option<(SocketAddr, TcpSocket)>,
}

impl BoundPorts {
    pub fn bind(config: &Config) -> Result<BoundPorts, Failure> {
        let settings = config.settings();
        let taken = |port| {
            let address = SocketAddr::new(settings.chttpd.bind_address, port);
            Ok((address, bind(address)?))
        };
        let mut ports = BoundPorts {
            http: taken(settings.chttpd.port)?,
            https: None,
            metrics: None,
        };
        let prometheus = &settings.prometheus;
        if prometheus.additional_port {
            let address = SocketAddr::new(prometheus.bind_address, prometheus.port);
            ports.metrics = Some((address, bind(address)?));
        }
        if !settings.ssl.enable {
            return Ok(ports);
        }
        // Only to see that it can be: what it has to say goes to the log, which does not run yet.
        Tls::open(config).map_err(Failure::usage)?;
        ports.https = Some(taken(settings.ssl.port)?);
        Ok(ports)
    }

    /// Opens them. There are descriptors for `connections_max` connections. The files of `[ssl]` are read again when it changes.
    pub fn listen(self, config: &Config, connections_max: usize) -> Result<Listeners, Failure> {
        let accepting = Accepting::of(&config.settings().chttpd);
        if accepting.max.is_some_and(|max| max > connections_max) {
            tracing::warn!(
                connections_max,
                "[chttpd] server_options: {{max, N}} is more than the limit of open files allows"
            );
        }
        let backlog = accepting.backlog.min(65_535) as u32;
        let open = |address, socket: TcpSocket| socket.listen(backlog).map_err(unusable(address));
        let (address, socket) = self.http;
        let http = open(address, socket)?;
        let https = match self.https {
            None => None,
            Some((address, socket)) => {
                let tls = Tls::open(config).map_err(Failure::usage)?;
                // The configuration then holds itself: it lives as long as the process.
                let (secured, running) = (tls.clone(), config.clone());
                config.subscribe(move |change| {
                    if change.section == "ssl" {
                        reload(&secured, &running);
                    }
                });
                Some((open(address, socket)?, tls))
            }
        };
        let metrics = self.metrics.map(|(address, socket)| open(address, socket));
        Ok(Listeners {
            http,
            https,
            metrics: metrics.transpose()?,
            connections_max: Some(accepting.max.unwrap_or(usize::MAX).min(connections_max)),
        })
    }
}

fn reload(tls: &Tls, config: &Config) {
    match tls.reload(config) {
        Ok(()) => tracing::info!("the certificate was read again"),
        Err(e) => tracing::error!(error = %e, "the old certificate stays in force"),
    }
}

/// On SIGHUP, configuration files and certificates are read again.
pub fn reload_on_hangup(config: &Config, tls: Option<Arc<Tls>>) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    let config = config.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let (config, tls) = (config.clone(), tls.clone());
            let read = move || {
                match config.reload() {
                    Ok(()) => tracing::info!("the configuration was read again"),
                    Err(e) => tracing::error!(error = %e, "the old configuration stays in force"),
                }
                if let Some(tls) = tls {
                    reload(&tls, &config);
                }
            };
            // Files are read and subscribers run: not on a thread that serves.
            if tokio::task::spawn_blocking(read).await.is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Reads the files of the configuration at the interval of `[config] auto_reload_secs`.
pub fn reload_periodically(config: &Config) {
    let (running, changed) = (config.clone(), Arc::new(Notify::new()));
    let wake = changed.clone();
    config.subscribe(move |change| {
        if change.section == "config" {
            wake.notify_one();
        }
    });
    tokio::spawn(async move {
        loop {
            let interval_s = running.settings().config.auto_reload_secs;
            let elapsed = async {
                match interval_s {
                    u64::MAX => std::future::pending().await,
                    seconds => tokio::time::sleep(Duration::from_secs(seconds.max(1))).await,
                }
            };
            tokio::select! {
                () = changed.notified() => continue,
                () = elapsed => {}
            }
            let config = running.clone();
            let read = tokio::task::spawn_blocking(move || config.reload());
            match read.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "the old configuration stays in force"),
                Err(_) => return,
            }
        }
    });
}

/// How connections are accepted.
struct Accepting {
    backlog: u64,
    /// Limit of connections, if configured.
    max: Option<usize>,
}

impl Accepting {
    /// `[chttpd] backlog`, and `backlog` and `max` of `server_options`, CouchDB's list of Erlang
    /// tuples. Its other options are those of a server that Settee does not use: a warning lists
    /// them as having no effect.
    fn of(settings: &Chttpd) -> Accepting {
        let mut accepting = Accepting {
            backlog: settings.backlog,
            max: None,
        };
        for option in settings.server_options.split('{').skip(1) {
            let option = option.split('}').next().unwrap_or_default();
            let (name, value) = option.split_once(',').unwrap_or((option, ""));
            match (name.trim(), value.trim(), value.trim().parse::<u64>()) {
                ("backlog", _, Ok(n)) => accepting.backlog = n,
                ("max", _, Ok(n)) => {
                    accepting.max = Some(usize::try_from(n).unwrap_or(usize::MAX).max(1));
                }
                // This is the value of the default.
                (_, "undefined", _) => {}
                (name, ..) => tracing::warn!(
                    "[chttpd] server_options: {name} has no effect here: connections are accepted as they come"
                ),
            }
        }
        accepting
    }
}

/// Takes a port. Connections inherit the socket's options.
pub fn bind(address: SocketAddr) -> Result<TcpSocket, Failure> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    socket
        .and_then(|s| {
            s.set_reuseaddr(true)?;
            http_api::set_connection_options(&s)?;
            s.bind(address)?;
            Ok(s)
        })
        .map_err(unusable(address))
}

pub fn unusable(address: SocketAddr) -> impl Fn(std::io::Error) -> Failure {
    move |e| Failure::new(format!("cannot listen on {address}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(server_options: &str) -> (u64, Option<usize>) {
        let settings = Chttpd {
            server_options: server_options.to_owned(),
            ..config::Settings::default().chttpd
        };
        let accepting = Accepting::of(&settings);
        (accepting.backlog, accepting.max)
    }

    #[test]
    fn two_of_couchdbs_server_options_are_understood() {
        assert_eq!(accepting("[{recbuf, undefined}]"), (512, None));
        assert_eq!(
            accepting("[{backlog, 128}, {acceptor_pool_size, 16}, {max, 4096}]"),
            (128, Some(4096))
        );
        assert_eq!(accepting("[{max, 0}, {backlog, many}]"), (512, Some(1)));
    }

    #[test]
    fn connections_that_come_before_anything_is_served_have_the_options_too() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(8).unwrap();
            let address = listener.local_addr().unwrap();
            let _client = std::net::TcpStream::connect(address).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            assert!(stream.nodelay().unwrap());
        });
    }
}
