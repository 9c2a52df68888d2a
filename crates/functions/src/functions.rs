//! Which server runs the functions of a language.

use std::sync::Arc;

use crate::external::{Pools, Settings};
use crate::js::{Engine, Options};
use crate::{Designs, Error, Languages, MapGroup, Mapper, Reducer};

/// The language that this program runs by itself, and that functions are in when their design document names none.
pub const JAVASCRIPT: &str = "javascript";

/// All languages: JavaScript by the engine that is built in, others by query servers.
pub struct Functions {
    engine: Engine,
    pools: Pools,
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Functions").finish_non_exhaustive()
    }
}

impl Functions {
    /// A command for JavaScript among `query_servers` is used in place of the engine.
    ///
    /// # Errors
    /// [`Error::Process`] when a thread cannot be started.
    pub fn new(javascript: Options, query_servers: Settings) -> Result<Arc<Functions>, Error> {
        Ok(Arc::new(Functions {
            engine: Engine::new(javascript),
            pools: Pools::new(query_servers)?,
        }))
    }

    /// Uses other settings of query servers from now on.
    pub fn configure(&self, query_servers: Settings) {
        self.pools.configure(query_servers);
    }

    fn is_built_in(&self, language: &str) -> bool {
        language == JAVASCRIPT && !self.pools.has(language)
    }
}

impl Languages for Functions {
    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        if self.is_built_in(&group.language) {
            return self.engine.mapper(group);
        }
        self.pools.mapper(group)
    }

    fn reducer(
        &self,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        if self.is_built_in(language) {
            return Ok(self.engine.reducer(source, lib));
        }
        self.pools.reducer(language, source, lib)
    }

    fn designs(&self, language: &str) -> Result<Box<dyn Designs>, Error> {
        if self.is_built_in(language) {
            return Ok(self.engine.designs());
        }
        self.pools.designs(language)
    }

    fn check(&self, language: &str, source: &str, lib: Option<&str>) -> Result<(), Error> {
        if self.is_built_in(language) {
            return self.engine.check(source, lib);
        }
        self.pools.check(language, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions() -> Arc<Functions> {
        Functions::new(Options::default(), Settings::default()).expect("a thread")
    }

    #[test]
    fn javascript_is_built_in_and_nothing_else() {
        let functions = functions();
        assert_eq!(
            functions.check(JAVASCRIPT, "function(doc) {}", None),
            Ok(())
        );
        assert!(matches!(
            functions.check(JAVASCRIPT, "function(doc) {", None),
            Err(Error::Compile(_))
        ));
        for language in ["cobol", "erlang", "JavaScript", ""] {
            assert_eq!(
                functions.check(language, "x", None),
                Err(Error::UnknownLanguage(language.to_owned()))
            );
            assert!(functions.designs(language).is_err());
            assert!(functions.reducer(language, "x", None).is_err());
        }
    }

    #[test]
    fn a_query_server_for_javascript_replaces_the_engine() {
        let functions = functions();
        let settings = Settings {
            commands: [(JAVASCRIPT.to_owned(), "/bin/false".to_owned())].into(),
            ..Settings::default()
        };
        functions.configure(settings);
        assert!(matches!(
            functions.check(JAVASCRIPT, "function(doc) {}", None),
            Err(Error::Process(_))
        ));
    }
}
