//! A server that is started for one value of a swept setting that takes effect at the start, or for one repeat.

use std::mem;
use std::rc::Rc;

use crate::error::BenchError;
use crate::faults::{Folder, Launch, Process};
use crate::system::System;
use crate::target::Target;
use crate::timeline::Events;

/// A server in the place of the run's first one. It ends when this is dropped.
pub(crate) struct StandIn {
    _process: Process,
    /// It is removed after the process has ended.
    _folder: Folder,
    /// The run's first server, and the URLs of its nodes.
    first: System,
    urls: Vec<String>,
}

/// Starts servers with this setting.
pub(crate) fn with_setting(mut launch: Launch, name: &str, value: &str) -> Launch {
    let setting = ["--set".to_owned(), format!("{name}={value}")];
    launch.args.extend(setting);
    launch
}

impl StandIn {
    /// Starts a server, and puts it into the place of the first one in both lists.
    pub(crate) async fn start(
        launch: &Launch,
        systems: &mut [System],
        servers: &mut [Vec<String>],
        clock: &Rc<Events>,
    ) -> Result<Self, BenchError> {
        let folder = Folder::new(launch)?;
        let process = Process::start(launch, folder.path()).await?;
        let url = process.url();
        let mut system = System::new(Target::resolve(&url).await?, process.pid());
        system.events = Rc::clone(clock);
        Ok(Self {
            first: mem::replace(&mut systems[0], system),
            urls: mem::replace(&mut servers[0], vec![url]),
            _process: process,
            _folder: folder,
        })
    }

    /// Ends it, and puts the first server back in its place.
    pub(crate) fn end(self, systems: &mut [System], servers: &mut [Vec<String>]) {
        systems[0] = self.first;
        servers[0] = self.urls;
    }
}
