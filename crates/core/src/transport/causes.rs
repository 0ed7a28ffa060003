//! The causes of an error. Pure.

use std::error::Error;
use std::io;

/// The error and its causes, the first cause last.
pub fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // `source` of an I/O error skips the error that it wraps.
        let carried = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match carried {
            Some(carried) => Some(carried as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}
