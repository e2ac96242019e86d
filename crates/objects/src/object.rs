//! One version of an object, read by ranges.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, parse_url_opts,
};
use rustix::io::Errno;
use url::Url;

/// How long a store may take for an answer.
const TIMEOUT: &str = "30s";
/// How long a read is tried again that a store refuses for a while.
const READ_MAX: Duration = Duration::from_secs(60);
/// How often failing reads are told of.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// One version of an object of a store.
pub(crate) struct Object {
    store: Box<dyn ObjectStore>,
    path: Path,
    len: u64,
    /// Which version: one of the two, at least.
    entity_tag: Option<String>,
    modified: DateTime<Utc>,
}

impl Object {
    /// Asks what there is.
    ///
    /// # Errors
    /// What is wrong with the URL, or what the store says.
    pub(crate) async fn open(url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("not a URL: {error}"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err("a URL with `?` or `#` is not supported: it names no object".into());
        }
        let (scheme, _) = ObjectStoreScheme::parse(&url).map_err(|error| error.to_string())?;
        let plain =
            url.scheme() == "http" || std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://"));
        let mut options =
            vec![("timeout".to_owned(), TIMEOUT.to_owned()), ("connect_timeout".to_owned(), "10s".to_owned())];
        options.push(("allow_http".to_owned(), plain.to_string()));
        if scheme == ObjectStoreScheme::AmazonS3 {
            options.extend(std::env::vars().filter(|(name, _)| name.starts_with("AWS_")));
            if std::env::var_os("AWS_ACCESS_KEY_ID").is_none()
                && std::env::var_os("AWS_WEB_IDENTITY_TOKEN_FILE").is_none()
            {
                // Else the service of a cloud's machines is asked, which nobody answers elsewhere.
                options.push(("aws_skip_signature".to_owned(), "true".to_owned()));
            }
        }
        let (store, path) = parse_url_opts(&url, options).map_err(text)?;
        let ObjectMeta { size, e_tag, last_modified, .. } = store.head(&path).await.map_err(text)?;
        // A weak tag is of bytes that need not be the same, and is not compared by If-Match.
        let entity_tag = e_tag.filter(|tag| !tag.starts_with("W/"));
        let object = Self { store, path, len: size, entity_tag, modified: last_modified };
        object.check_ranges().await?;
        Ok(object)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What tells it from others.
    pub(crate) fn version(&self) -> String {
        self.entity_tag.clone().unwrap_or_else(|| self.modified.to_rfc3339())
    }

    /// Reads a range, of this version.
    ///
    /// # Errors
    /// An error number.
    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Bytes, i32> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let read = tokio::time::timeout(READ_MAX, self.get(offset, len)).await;
        let bytes = read.map_err(|_| Errno::TIMEDOUT.raw_os_error())?.map_err(|error| errno_of(&error))?;
        if bytes.len() == len as usize { Ok(bytes) } else { Err(Errno::IO.raw_os_error()) }
    }

    async fn get(&self, offset: u64, len: u32) -> Result<Bytes, Error> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(offset..offset + u64::from(len))),
            if_match: self.entity_tag.clone(),
            if_unmodified_since: self.entity_tag.is_none().then_some(self.modified),
            ..GetOptions::default()
        };
        let got = self.store.get_opts(&self.path, options).await?;
        // A store that does not look at conditions says which version it gave.
        let is_same = self.entity_tag.is_none() || got.meta.e_tag == self.entity_tag;
        if !is_same || got.meta.size != self.len {
            return Err(Error::Precondition { path: self.path.to_string(), source: "another version".into() });
        }
        got.bytes().await
    }

    /// Stores that give whole objects only are of no use: each read would move all of it.
    async fn check_ranges(&self) -> Result<(), String> {
        if self.len < 2 {
            return Ok(());
        }
        match self.get(self.len - 1, 1).await {
            Ok(_) => Ok(()),
            Err(Error::NotSupported { .. }) => {
                Err("the server gives no ranges of it (no `206 Partial Content`)".into())
            }
            Err(error) => Err(text(error)),
        }
    }
}

fn errno_of(error: &Error) -> i32 {
    let errno = match error {
        Error::Precondition { .. } | Error::NotModified { .. } => Errno::STALE,
        Error::NotFound { .. } => Errno::STALE,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Errno::ACCESS,
        _ => Errno::IO,
    };
    say(error);
    errno.raw_os_error()
}

/// Says why a read failed, once in a while: a store that is away fails each of them.
fn say(error: &Error) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|last| last.elapsed() >= SAID_EVERY) {
        *last = Some(Instant::now());
        eprintln!("diskside-objects: {error}");
    }
}

/// An error with what is behind it, in a line.
#[expect(clippy::needless_pass_by_value, reason = "it is used in map_err")]
fn text(error: Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}
