//! Schema 1: windows per destination, congestion controls per client prefix.

use super::model::{Congestion, Enforce, Entry};
use super::values::{
    Field, MAX_INITCWND, MAX_OBJECT_BYTES, Object, Order, Reader, get, nothing_for,
};
use crate::error::Result;

impl Reader<'_> {
    pub(super) fn first(&self, document: &Object<'_>) -> Result<(Enforce, Vec<Entry>)> {
        let mut entries = Vec::new();
        let mut order = Order::default();
        for (number, route) in self.list(document, "routes")?.iter().enumerate() {
            let field = Field::Item("routes", number);
            let [prefix, initcwnd] = self.exactly(field, route, ["prefix", "initcwnd"])?;
            let prefix = self.destination(field, prefix, &mut order)?;
            let initcwnd = self.whole(Field::In(&field, "initcwnd"), initcwnd, 1, MAX_INITCWND)?;
            entries.push(Entry {
                initcwnd: u32::try_from(initcwnd).ok(),
                ..nothing_for(prefix)
            });
        }
        let mut clients = Vec::new();
        let mut order = Order::default();
        let choices = if get(document, "congestion").is_some() {
            self.list(document, "congestion")?
        } else {
            &[]
        };
        for (number, choice) in choices.iter().enumerate() {
            let field = Field::Item("congestion", number);
            let [prefix, algorithm, least] =
                self.exactly(field, choice, ["prefix", "algorithm", "min_object_bytes"])?;
            let prefix = self.client_prefix(field, prefix, &mut order)?;
            let algorithm = self.algorithm(field, algorithm)?;
            let from_bytes = self.whole(
                Field::In(&field, "min_object_bytes"),
                least,
                0,
                MAX_OBJECT_BYTES,
            )?;
            let congestion = Some(Congestion {
                algorithm,
                from_bytes: from_bytes.unsigned_abs(),
                always: false,
            });
            match entries.binary_search_by_key(&prefix, |entry: &Entry| entry.prefix) {
                Ok(place) => entries[place].congestion = congestion,
                Err(_) => clients.push(Entry {
                    congestion,
                    ..nothing_for(prefix)
                }),
            }
        }
        entries.append(&mut clients);
        entries.sort_by_key(|entry| entry.prefix);
        Ok((Enforce::default(), entries))
    }
}
