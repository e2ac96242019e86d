//! One module a subcommand.

pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod check_config;
pub(crate) mod clear;
pub(crate) mod configuration;
pub(crate) mod cp;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod execute;
pub(crate) mod explain;
pub(crate) mod exports;
pub(crate) mod functions;
pub(crate) mod info;
pub(crate) mod inspect;
pub(crate) mod invite;
pub(crate) mod join;
pub(crate) mod key;
pub(crate) mod launch;
pub(crate) mod manual;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod near;
pub(crate) mod ping;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod sign;
pub(crate) mod top;
pub(crate) mod verify;
mod volume;
mod waiting;

use crate::error::Failure;
use diskside::sandbox::image::{Image, Kind, LoadOptions};
use std::ffi::OsStr;
use std::sync::Arc;

/// Loads the image of an object that `what` names, without verifying it.
fn load_image(what: &OsStr, kind: Option<Kind>) -> Result<Arc<Image>, Failure> {
    let object = diskside::library::object(what)?;
    let options = LoadOptions { kind };
    let image = Image::load(&object.bytes, &diskside::helpers(), options)
        .map_err(|e| Failure::Load(format!("{}: {e}", object.what)))?;
    Ok(Arc::new(image))
}

/// The kind that `--kind` names.
fn parse_kind(text: &str) -> Result<Kind, String> {
    Kind::from_section_prefix(text).ok_or_else(|| {
        format!("`{text}` is no kind; kinds are read, write, combine, traverse, kernel, exec, lambda, lambda_io, xrp, delilah")
    })
}
