//! The bundle that is applied.

use super::documents::Claim;
use super::store::Store;
use crate::bundle::{self, Bundle};
use crate::error::{Error, Result};
use crate::files::read_regular;
use crate::text::reason;

impl Store {
    /// The bundle that is applied, and its bytes, from the state directory, which only root can write.
    ///
    /// Its times were judged when it came; how long it still holds is for [`Claim::expired`] to say.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn last_good(&self, claim: &Claim) -> Result<(Bundle, Vec<u8>)> {
        let path = self.directory.join(bundle::file_name(&claim.bundle_digest));
        let shown = path.display().to_string();
        let (_, raw) = read_regular(&path, bundle::MAX_BYTES)
            .map_err(|error| Error::Damaged(format!("{shown}: {}", reason(&error))))?;
        let bundle = bundle::parse(&raw, &shown, &claim.edge, claim.created_at)
            .map_err(|error| Error::Damaged(error.to_string()))?;
        if bundle.digest != claim.bundle_digest {
            return Err(Error::Damaged(format!(
                "{shown}: is not the bundle that was applied"
            )));
        }
        Ok((bundle, raw))
    }
}
