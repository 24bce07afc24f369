//! What is said of a thread that panicked.

use std::any::Any;

use thalweg_chain::{NfIndex, Plan};

use crate::guard::Refusal;
use crate::reload::ReloadError;

/// The failure of a run in which `who`, perhaps while it was in an NF, panicked with `cause`.
pub(super) fn failure(
    plan: &Plan,
    who: &str,
    nf: Option<NfIndex>,
    cause: &(dyn Any + Send),
) -> String {
    if let Some(refusal) = cause.downcast_ref::<Refusal>() {
        return refusal.message(plan);
    }
    let place = nf.and_then(|nf| plan.nfs.get(usize::from(nf.0)));
    let place = place.map_or(String::new(), |nf| format!(" in NF '{}'", nf.name));
    format!("{who}{place} panicked: {}", message(cause))
}

/// The error of a reload that panicked with `cause`.
pub(super) fn of_reload(cause: &(dyn Any + Send)) -> ReloadError {
    ReloadError::Panicked(message(cause).to_owned())
}

/// The message of a panic.
pub(super) fn message(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(|text| &**text));
    text.unwrap_or("without a message")
}
