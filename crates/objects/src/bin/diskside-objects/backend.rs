//! A store, below a URL.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use diskside_objects::frames::{Ask, Entry, Kind, Meta, PAGE_LEN_MAX, READ_LEN_MAX, Reply};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{
    ClientConfigKey, Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme,
};
use rustix::io::Errno;
use url::Url;

/// How long a store may take for an answer.
const TIMEOUT: &str = "30s";
const CONNECT_TIMEOUT: &str = "10s";
/// How long a question is asked again that a store refuses for a while.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Longer ones are nonsense: what is computed with their lengths stays far from overflows.
const OBJECT_LEN_MAX: u64 = 1 << 50;
/// Behind all keys that begin with what is before it.
const LAST_CHARACTER: char = char::MAX;

/// A store, and what all paths are below.
pub(crate) struct Backend {
    store: Protocol,
    base: Path,
}

enum Protocol {
    S3(AmazonS3),
    /// Which has no lists.
    Http(HttpStore),
}

impl Backend {
    /// Makes what speaks to the store. Asks nothing of it.
    ///
    /// # Errors
    /// What is wrong with the URL or the environment.
    pub(crate) fn open(url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("not a URL: {error}"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err("a URL with `?` or `#` is not supported: it names no object".into());
        }
        let (scheme, base) = ObjectStoreScheme::parse(&url).map_err(|error| error.to_string())?;
        let store = match scheme {
            ObjectStoreScheme::AmazonS3 => Protocol::S3(s3(&url).map_err(|error| not_made(&error))?),
            _ => Protocol::Http(http(&url).map_err(|error| not_made(&error))?),
        };
        Ok(Self { store, base })
    }

    /// Answers a question, and gives the bytes that were asked for.
    pub(crate) async fn answer(&self, ask: Ask) -> (Reply, Bytes) {
        let answered = tokio::time::timeout(ANSWER_MAX, self.find_out(ask)).await;
        let error = match answered {
            Ok(Ok(answer)) => return answer,
            Ok(Err(error)) => error,
            Err(_) => Problem { errno: Errno::TIMEDOUT, message: "the store does not answer".into() },
        };
        (Reply { errno: error.errno.raw_os_error(), message: error.message, ..Reply::default() }, Bytes::new())
    }

    async fn find_out(&self, ask: Ask) -> Result<(Reply, Bytes), Problem> {
        let of = |meta| Reply { meta: Some(meta), ..Reply::default() };
        match ask {
            Ask::Head { path } => Ok((of(self.head(&path).await?), Bytes::new())),
            Ask::First { path, len } => {
                let (meta, bytes) = self.first(&path, len).await?;
                Ok((of(meta), bytes))
            }
            Ask::Read { path, version, offset, len } => {
                Ok((Reply::default(), self.read(&self.at(&path)?, &version, offset, len).await?))
            }
            Ask::List { path, after } => Ok((self.list(&path, &after).await?, Bytes::new())),
        }
    }

    async fn head(&self, path: &str) -> Result<Meta, Problem> {
        let key = self.at(path)?;
        if key.is_root() {
            return Ok(DIRECTORY);
        }
        match self.store().head(&key).await {
            Ok(found) => object(&found),
            Err(Error::NotFound { .. }) => self.directory(path, &key).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The metadata at a path that is not an object: a directory, if keys continue there. The URL itself counts as one.
    async fn directory(&self, path: &str, key: &Path) -> Result<Meta, Problem> {
        let nothing = || Problem { errno: Errno::NOENT, message: "there is no such object".into() };
        match &self.store {
            _ if path.is_empty() => Ok(DIRECTORY),
            Protocol::Http(_) => Err(nothing()),
            Protocol::S3(s3) => {
                let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
                let below = s3.list_paginated(Some(&format!("{key}/")), options).await?;
                if below.result.objects.is_empty() { Err(nothing()) } else { Ok(DIRECTORY) }
            }
        }
    }

    /// The beginning of an object and what is known of it, in one request.
    async fn first(&self, path: &str, len: u32) -> Result<(Meta, Bytes), Problem> {
        let key = self.at(path)?;
        if len == 0 || key.is_root() {
            return Ok((self.head(path).await?, Bytes::new()));
        }
        let len = u64::from(len).min(READ_LEN_MAX as u64);
        let options = GetOptions { range: Some(GetRange::Bounded(0..len)), ..GetOptions::default() };
        match self.store().get_opts(&key, options).await {
            Ok(got) => Ok((object(&got.meta)?, got.bytes().await?)),
            Err(Error::NotFound { .. }) => Ok((self.directory(path, &key).await?, Bytes::new())),
            // An object without bytes has no range.
            Err(error) => match self.head(path).await {
                Ok(meta) if meta.len == 0 => Ok((meta, Bytes::new())),
                _ => Err(error.into()),
            },
        }
    }

    /// Reads a range of a version of an object.
    async fn read(&self, key: &Path, version: &str, offset: u64, len: u32) -> Result<Bytes, Problem> {
        let other = || Problem { errno: Errno::STALE, message: "another version is there now".into() };
        if len == 0 {
            return Ok(Bytes::new());
        }
        let modified = DateTime::parse_from_rfc3339(version).ok().map(|time| time.with_timezone(&Utc));
        let tag = modified.is_none().then(|| version.to_owned());
        let range = Some(GetRange::Bounded(offset..offset.saturating_add(len.into())));
        let options = GetOptions { range, if_match: tag, if_unmodified_since: modified, ..GetOptions::default() };
        let got = match self.store().get_opts(key, options).await {
            Err(Error::NotFound { .. }) => return Err(other()),
            got => got?,
        };
        // A store that does not look at conditions says which version it gave.
        if version_of(&got.meta) != version {
            return Err(other());
        }
        let bytes = got.bytes().await?;
        let all = bytes.len() == len as usize;
        if all { Ok(bytes) } else { Err(Problem { errno: Errno::IO, message: "the store gave fewer bytes".into() }) }
    }

    async fn list(&self, path: &str, after: &str) -> Result<Reply, Problem> {
        let Protocol::S3(s3) = &self.store else {
            let message = "web servers give no lists of their files; name files whole, without wildcards".into();
            return Err(Problem { errno: Errno::OPNOTSUPP, message });
        };
        let key = self.at(path)?;
        let below = if key.is_root() { String::new() } else { format!("{key}/") };
        let offset = match after {
            "" => None,
            directory if directory.ends_with('/') => Some(format!("{below}{directory}{LAST_CHARACTER}")),
            object => Some(format!("{below}{object}")),
        };
        let options = PaginatedListOptions {
            offset,
            delimiter: Some("/".into()),
            max_keys: Some(PAGE_LEN_MAX),
            ..PaginatedListOptions::default()
        };
        let listed = s3.list_paginated(Some(&below), options).await?;
        let name = |key: &Path| Some(key.as_ref().strip_prefix(&below)?.to_owned()).filter(|name| !name.is_empty());
        let objects = listed.result.objects.iter().map(|found| Ok((name(&found.location), object(found)?)));
        let objects = objects.collect::<Result<Vec<_>, Problem>>()?.into_iter();
        let directories = listed.result.common_prefixes.iter().map(|key| (name(key), DIRECTORY));
        let named = objects.chain(directories).filter_map(|(name, meta)| Some(Entry { name: name?, meta }));
        let mut entries: Vec<Entry> = named.collect();
        entries.sort_by_cached_key(|entry| match entry.meta.kind {
            Kind::Object => entry.name.clone(),
            Kind::Directory => format!("{}/", entry.name),
        });
        Ok(Reply { entries, has_more: listed.page_token.is_some(), ..Reply::default() })
    }

    fn store(&self) -> &dyn ObjectStore {
        match &self.store {
            Protocol::S3(store) => store,
            Protocol::Http(store) => store,
        }
    }

    /// The key of a path.
    fn at(&self, path: &str) -> Result<Path, Problem> {
        let joined = if path.is_empty() { self.base.to_string() } else { format!("{}/{path}", self.base) };
        Path::parse(joined).map_err(|error| Problem { errno: Errno::INVAL, message: error.to_string() })
    }
}

fn s3(url: &Url) -> Result<AmazonS3, Error> {
    let plain = std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://"));
    let mut builder = AmazonS3Builder::from_env().with_url(url.as_str()).with_allow_http(plain);
    for (key, value) in [(ClientConfigKey::Timeout, TIMEOUT), (ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT)] {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    let has_keys =
        ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"].map(std::env::var_os).iter().any(Option::is_some);
    // Without them the service of a cloud's machines would be asked, which nobody answers elsewhere.
    if !has_keys {
        builder = builder.with_skip_signature(true);
    }
    builder.build()
}

fn http(url: &Url) -> Result<HttpStore, Error> {
    let server = &url[..url::Position::BeforePath];
    let plain = if url.scheme() == "http" { "true" } else { "false" };
    HttpBuilder::new()
        .with_url(server)
        .with_config(ClientConfigKey::Timeout, TIMEOUT)
        .with_config(ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT)
        .with_config(ClientConfigKey::AllowHttp, plain)
        .build()
}

const DIRECTORY: Meta = Meta { kind: Kind::Directory, len: 0, modified_ns: 0, version: String::new() };

fn object(found: &ObjectMeta) -> Result<Meta, Problem> {
    if found.size > OBJECT_LEN_MAX {
        let message = format!("the store says that it has {} bytes, which no store keeps", found.size);
        return Err(Problem { errno: Errno::FBIG, message });
    }
    // What the library has where the store tells no time.
    if tag_of(found).is_none() && found.last_modified.timestamp() == 0 {
        let message =
            "the server tells neither an entity tag nor a time of change, so nobody would notice when it changes"
                .into();
        return Err(Problem { errno: Errno::OPNOTSUPP, message });
    }
    Ok(Meta {
        kind: Kind::Object,
        len: found.size,
        modified_ns: found.last_modified.timestamp_nanos_opt().unwrap_or_default(),
        version: version_of(found),
    })
}

/// What tells a version from others.
fn version_of(found: &ObjectMeta) -> String {
    tag_of(found).unwrap_or_else(|| found.last_modified.to_rfc3339())
}

/// Its entity tag. A weak one is of bytes that need not be the same, and is not compared by If-Match.
fn tag_of(found: &ObjectMeta) -> Option<String> {
    found.e_tag.clone().filter(|tag| !tag.starts_with("W/"))
}

/// Why a question has no answer.
struct Problem {
    errno: Errno,
    message: String,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let errno = match &error {
            Error::Precondition { .. } | Error::NotModified { .. } => Errno::STALE,
            Error::NotFound { .. } => Errno::NOENT,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Errno::ACCESS,
            Error::NotSupported { .. } => Errno::OPNOTSUPP,
            _ => Errno::IO,
        };
        let message = match &error {
            Error::NotSupported { .. } => "the server gives no ranges of it (no `206 Partial Content`)".into(),
            error => text(error),
        };
        Self { errno, message }
    }
}

/// Why nothing was made that speaks to a store. Without a certificate authority that it trusts it is not made for `http://` either.
fn not_made(error: &Error) -> String {
    let mut text = text(error);
    if text.contains("No CA certificates") {
        text.push_str(" (install the package ca-certificates, or name a file of certificates by SSL_CERT_FILE)");
    }
    text
}

/// An error with what is behind it, in a line.
fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
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
