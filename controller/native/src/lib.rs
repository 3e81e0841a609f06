//! `springtide._core`: functions and bounds of springtide-core for the controller.

mod step;

use std::borrow::Cow;

use pyo3::prelude::*;
use springtide_core::bundle::{self, Bundle, Problem};

/// Field, what is wrong, and what to do.
type Finding = (String, String, String);

fn of(problem: Problem) -> Finding {
    (problem.field, problem.what, problem.fix)
}

/// Gives the first problem of a bundle's shape; None where it can be read.
#[pyfunction]
fn shape_problem(py: Python<'_>, content: &[u8]) -> Option<Finding> {
    py.detach(|| Bundle::parse(content).err().map(of))
}

/// Lists what is wrong with a bundle, whichever edge takes it and whenever: the first problem of its shape, or those of
/// its values.
#[pyfunction]
fn bundle_problems(py: Python<'_>, content: &[u8]) -> Vec<Finding> {
    py.detach(|| match Bundle::parse(content) {
        Ok(bundle) => bundle.problems().into_iter().map(of).collect(),
        Err(problem) => vec![of(problem)],
    })
}

/// Gives a bundle's canonical form with the digest of its content, whatever its digest is now, and the digest. Raises
/// ValueError for what has another shape.
#[pyfunction]
fn seal(py: Python<'_>, content: &[u8]) -> PyResult<(Cow<'static, [u8]>, String)> {
    let sealed = py.detach(|| Bundle::read(content).map(Bundle::seal));
    let wrong = |problem: Problem| pyo3::exceptions::PyValueError::new_err(problem.to_string());
    let (text, digest) = sealed.map_err(wrong)?;
    Ok((Cow::Owned(text.into_bytes()), digest))
}

/// Describes a bundle as JSON Schema does.
#[pyfunction]
fn bundle_schema() -> String {
    Bundle::json_schema().to_string()
}

/// Says why no bundle may name a destination, like 10.77.2.0/24; None where it may. Raises ValueError for what is no prefix.
#[pyfunction]
fn destination_problem(prefix: &str) -> PyResult<Option<String>> {
    let parsed = bundle::parse_prefix(prefix).map_err(pyo3::exceptions::PyValueError::new_err)?;
    Ok(bundle::destination_problem(&parsed))
}

/// Functions and bounds of springtide-core for the controller.
#[pymodule]
#[pyo3(name = "_core")]
mod core_of_python {
    #[pymodule_export]
    const MAX_COPIED_BYTES: u32 = springtide_core::bundle::MAX_COPIED_BYTES;
    #[pymodule_export]
    const MAX_DEFAULT_RESENT: u32 = springtide_core::bundle::MAX_DEFAULT_RESENT;
    #[pymodule_export]
    const MAX_ENTRIES: usize = springtide_core::bundle::MAX_ENTRIES;
    #[pymodule_export]
    const MAX_HANDSHAKE_TIMEOUT_MS: u32 = springtide_core::bundle::MAX_HANDSHAKE_TIMEOUT_MS;
    #[pymodule_export]
    const MAX_OPTED_OUT: usize = springtide_core::bundle::MAX_OPTED_OUT;
    #[pymodule_export]
    const MAX_RATE: u64 = springtide_core::bundle::MAX_RATE;
    #[pymodule_export]
    const MIN_HANDSHAKE_TIMEOUT_MS: u32 = springtide_core::bundle::MIN_HANDSHAKE_TIMEOUT_MS;
    #[pymodule_export]
    const MIN_RATE: u64 = springtide_core::bundle::MIN_RATE;
    #[pymodule_export]
    const KERNEL_DEFAULT: u32 = springtide_core::gain::KERNEL_DEFAULT as u32;
    #[pymodule_export]
    const USUAL_MSS: f64 = springtide_core::step::start::USUAL_MSS;
    #[pymodule_export]
    const BESIDE: u32 = springtide_core::step::start::BESIDE as u32;
    #[pymodule_export]
    use super::step::{
        actions, brakes, columns, decide, reasons, rules, start_us, start_window, window_changes,
    };
    #[pymodule_export]
    use super::{bundle_problems, bundle_schema, destination_problem, seal, shape_problem};
}
