//! The environment variables by which a program's user configures its session.

use super::SessionOptions;
use std::ffi::OsString;

/// How [`Where::Auto`](super::Where::Auto) chooses: a [`Policy`](super::Policy) as text.
const POLICY: &str = "DISKSIDE_POLICY";
/// URLs of volumes that local files may be on, with commas between them.
const VOLUMES: &str = "DISKSIDE_VOLUMES";

/// Why the environment says nothing that can be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {why}")]
pub struct EnvironmentError {
    variable: &'static str,
    value: String,
    why: String,
}

impl SessionOptions {
    /// The defaults, with what the environment says otherwise: `DISKSIDE_POLICY` and `DISKSIDE_VOLUMES`.
    ///
    /// # Errors
    /// A variable that is set to what it cannot be.
    pub fn from_environment() -> Result<Self, EnvironmentError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, EnvironmentError> {
        let get = |name| get(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty());
        let mut options = Self::default();
        if let Some(value) = get(POLICY) {
            let parsed = value.parse();
            options.policy = parsed.map_err(|error: diskside_dispatch::PolicyError| EnvironmentError {
                variable: POLICY,
                why: error.to_string(),
                value,
            })?;
        }
        if let Some(value) = get(VOLUMES) {
            let parsed = value.split(',').map(|url| url.trim().parse()).collect::<Result<_, _>>();
            options.mounted_volumes = parsed.map_err(|error: diskside_host::UrlError| EnvironmentError {
                variable: VOLUMES,
                why: error.to_string(),
                value,
            })?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Policy;

    fn said(variable: &str, value: &str) -> Result<SessionOptions, EnvironmentError> {
        SessionOptions::from_variables(|name| (name == variable).then(|| value.into()))
    }

    #[test]
    fn the_environment_says_how_to_choose_and_which_volumes_there_are() {
        let options = said("DISKSIDE_POLICY", "lambda-io:n=50,k=3").expect("a policy");
        assert_eq!(options.policy, Policy::Periodic { period: 50, profiled: 3 });
        assert_eq!(said("DISKSIDE_POLICY", "").expect("as if it were not set").policy, Policy::default());
        let url = "nvme-tcp://here:4420/nqn.2026-11.org.example:a/1";
        let options = said("DISKSIDE_VOLUMES", &format!("{url}, {url}")).expect("URLs");
        assert_eq!(options.mounted_volumes.iter().map(ToString::to_string).collect::<Vec<_>>(), [url, url]);
        let error = said("DISKSIDE_POLICY", "best").expect_err("no policy").to_string();
        assert!(error.starts_with("DISKSIDE_POLICY=best: `best` is no policy"), "{error}");
        let error = said("DISKSIDE_VOLUMES", "over there").expect_err("no URL").to_string();
        assert!(error.starts_with("DISKSIDE_VOLUMES=over there: "), "{error}");
    }
}
